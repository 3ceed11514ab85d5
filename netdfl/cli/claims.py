"""The commands that put the papers' claims to the test: `claims run`, `claims stop`, `claims table`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Rows = Annotated[Path, typer.Option("--rows", metavar="DIR", help="Where the rows of finished cells lie.")]
ROWS = Path("docs/reproduction/rows")


def run(
    jobs: Annotated[int | None, typer.Option("--jobs", metavar="N", min=1, help="By default one a core.")] = None,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="Start no cell that ends later: 2h.")
    ] = None,
    rows: Rows = ROWS,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the runs go.")] = Path(
        "reproductions/claims"
    ),
) -> None:
    """Run cells (one method with one seed) at the lowest priority until each claim is decided or the budget is spent.

    The claims, the rule and the budget are in netdfl/study/claims/claims.yaml. Each finished cell is written to a file
    below --rows at once; one that is under way is lost when the work is stopped. A cell has 60 minutes of CPU time.

    Examples:
        netdfl claims run --for 8h
    """
    import time

    from netdfl.cli.studies import _seconds
    from netdfl.core.process import cores
    from netdfl.study.cells import ended_by_signals

    seconds = None if for_ is None else _seconds(for_)
    with ended_by_signals() as far:
        from netdfl.study.background import in_background
        from netdfl.study.claims.given import rule
        from netdfl.study.claims.rows import RowFolder
        from netdfl.study.claims.work import BackgroundWork, ClaimStudy, check_data

        with in_background():
            study = ClaimStudy(rule(), RowFolder(rows))
            check_data(study)
            until = None if seconds is None else time.time() + seconds
            BackgroundWork(study, out, jobs or cores(), until, lambda line: print(line, flush=True), far).work()


def stop() -> None:
    """Stop the work that `claims run` does on this machine; finished cells are kept.

    Examples:
        netdfl claims stop
    """
    from netdfl.study.background import stop_background

    print("stopped" if stop_background() else "nothing runs in the background")


def table(
    rows: Rows = ROWS,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="PAGE", help="Write it into a page, between its marks.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only say whether the page is up to date.")] = False,
) -> None:
    """Print each claim with its verdict, interval, seeds and cost, from the results of finished runs.

    Examples:
        netdfl claims table
        netdfl claims table --write docs/reproduction.md
    """
    from netdfl.core.errors import InputError

    if check and write is None:
        raise InputError("--check says whether a page is up to date; name the page with --write PAGE")
    if not rows.is_dir():
        raise InputError(
            f"no folder {rows} with rows of finished cells; go to a clone of netdfl, or name it: --rows DIR"
        )
    from netdfl.study.claims.given import rule
    from netdfl.study.claims.page import table as made
    from netdfl.study.claims.page import write_or_check
    from netdfl.study.claims.rows import RowFolder, computing_code
    from netdfl.study.claims.work import ClaimStudy

    study = ClaimStudy(rule(), RowFolder(rows))
    if write is None:
        print(made(study), end="")
        print(f"\nThe code of this netdfl is {computing_code()[:8]}.")
    elif not write_or_check(write, study, check=check):
        print(f"{write} is out of date: netdfl claims table --write {write}")
        raise typer.Exit(1)
