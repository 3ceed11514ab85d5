"""Symbolic links with readable names to the directories of a sweep's runs, which are named by hashes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from netdfl.study.cells import CellResult
from netdfl.study.plan import Cell
from netdfl.study.plots import is_word


def name_run(cell: Cell) -> str:
    """Return the name of a cell's run, such as `dfedavg_loss-10%_seed-0`."""
    values = [value if is_word(value) else f"{path.rpartition('.')[2]}-{value}" for path, value in cell.values]
    plain = [re.sub(r"[^\w.%+]+", "-", each).strip("-") for each in (cell.case, *values)]
    seed = f"seed-{cell.seed}"
    return "_".join(filter(None, ["_".join(filter(None, plain))[: 199 - len(seed)], seed]))


def link_runs(ran: Sequence[CellResult], folder: Path) -> str:
    """Create `folder` with a link to each run that has a result; return why links are missing, or an empty text.

    Links to other runs, made by an earlier call, are removed, so that all runs in `folder` belong to the present sweep.
    Other files in it stay.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for link in folder.iterdir():
        if link.is_symlink() and Path(os.readlink(link)).parent == Path("..", "cells"):
            link.unlink()
    taken: list[str] = []
    for name, each in _names(each for each in ran if not each.failed).items():
        try:
            (folder / name).symlink_to(os.path.relpath(each.path, folder), target_is_directory=True)
        except FileExistsError:
            taken.append(name)
        except OSError as error:
            return f"{folder} has no links to the runs in {each.path.parent}: {error.strerror}"
    if not taken:
        return ""
    what = f"{len(taken)} of the runs have no link in {folder}, as something else has their names, such as {taken[0]}"
    return f"{what}: a copy that followed the links, perhaps; remove {folder} and repeat the command to have links"


def _names(ran: Iterable[CellResult]) -> dict[str, CellResult]:
    """Return the results by distinct names; a name that is taken gets a number."""
    found: dict[str, CellResult] = {}
    for each in ran:
        name, number = name_run(each.cell), 1
        while (numbered := name if number == 1 else f"{name}-{number}") in found:
            number += 1
        found[numbered] = each
    return found
