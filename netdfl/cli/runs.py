"""The commands about all runs of a folder: `runs list`, `show`, `compare`, `tag`, `rm`, and `query`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from netdfl.cli import completion
from netdfl.cli.options import Format, OutputFormat, RunPath, print_json
from netdfl.core.errors import InputError

if TYPE_CHECKING:
    from netdfl.collection.rows import RunRow

FOLDER = Path("runs")
In = Annotated[Path, typer.Option("--in", metavar="DIR", help="The folder of runs.")]
Folder = Annotated[Path, typer.Argument(metavar="RUNS", help="A folder of runs.")]
Several = Annotated[
    list[Path], typer.Argument(metavar="RUN...", help="Run directories.", autocompletion=completion.runs)
]
Where = Annotated[
    str, typer.Option("--filter", metavar="FILTER", help="Conditions and words, like 'lr > 0.1 seed = 2 pass'.")
]
Sort = Annotated[str, typer.Option("--sort", metavar="KEY", help="A column, or a key of the scenarios, like lr.")]
Up = Annotated[bool, typer.Option("--up", help="The lowest, or the oldest, first.")]
By = Annotated[str, typer.Option("--by", metavar="KEY", help="A row for each value of a column or a key, with means.")]
Columns = Annotated[str, typer.Option("--columns", metavar="KEYS", help="Columns, metrics and keys to show.")]
Archived = Annotated[bool, typer.Option("--archived", help="Those in the archive too.")]
Most = Annotated[int, typer.Option("--most", metavar="N", min=1, help="The most rows.")]
Tags = Annotated[list[str], typer.Option("--add", metavar="TAG", help="A tag to give; can be repeated.")]
NoTags = Annotated[list[str], typer.Option("--remove", metavar="TAG", help="A tag to take away; can be repeated.")]
Note = Annotated[str | None, typer.Option("--note", metavar="TEXT", help="A note in place of the present one.")]
Archive = Annotated[
    bool | None, typer.Option("--archive/--no-archive", help="Hide it from lists, or show it there again.")
]


def list_runs(
    folder: Folder = FOLDER,
    filter: Where = "",
    sort: Sort = "started",
    up: Up = False,
    by: By = "",
    columns: Columns = "",
    archived: Archived = False,
    most: Most = 50,
    format: OutputFormat = Format.TEXT,
) -> None:
    """List the runs of a folder, the newest first: date, verdict, metrics, and the keys in which they differ.

    Where they differ in many, the four with the most values are columns; the rest are named below, for --columns.
    Conditions compare numbers with their units, dates and words: < <= > >= = != and ~ for contains.

    Examples:
        netdfl runs list
        netdfl runs list --filter 'lr > 0.1 seed = 2'
        netdfl runs list sweeps --by algorithm.name --sort accuracy
        netdfl runs list sweeps --columns algorithm,lr,momentum,accuracy
        netdfl runs list --filter 'consensus_distance < 1'
    """
    from netdfl.collection.finding import check_folder
    from netdfl.collection.listing import ListRequest
    from netdfl.collection.listing import list_runs as listed
    from netdfl.collection.terminal import group_lines, run_lines

    chosen = [each.strip() for each in columns.split(",") if each.strip()]
    found = listed(check_folder(folder), ListRequest(filter, sort, not up, by, archived, chosen))
    if format is Format.JSON:
        rows = [group.to_json() for group in found.groups()] if by else [_as_json(row) for row in found.rows]
        print_json(rows[:most])
        return
    print("\n".join(group_lines(found, most) if by else run_lines(found, most)))


def _as_json(row: RunRow) -> dict[str, object]:
    return {**row.to_json(), "keys": dict(row.keys)}


def show(run: RunPath, format: OutputFormat = Format.TEXT) -> None:
    """Show one run: verdict and reasons, metrics, tags, note, and the keys of its scenario.

    Examples:
        netdfl runs show runs/quickstart/latest
    """
    from netdfl.collection.rows import read_row
    from netdfl.collection.terminal import show_lines
    from netdfl.record.run import open_run

    path = open_run(run).path
    row = read_row(path, path.parent)
    print_json(_as_json(row)) if format is Format.JSON else print("\n".join(show_lines(row)))


def compare(runs: Several, format: OutputFormat = Format.TEXT) -> None:
    """Set runs side by side: their metrics, and the keys in which their scenarios differ.

    Examples:
        netdfl runs compare runs/quickstart/20261126T101500Z-1 runs/quickstart/latest
    """
    from netdfl.collection.comparing import compare as compared
    from netdfl.collection.terminal import compared_lines
    from netdfl.record.run import open_run

    if len(runs) < 2:
        raise InputError("a comparison takes two runs or more; name another")
    found = compared({str(run): open_run(run).path for run in runs})
    print_json(found) if format is Format.JSON else print("\n".join(compared_lines(found)))


def tag(
    runs: Several,
    add: Tags = [],  # noqa: B006 - typer reads it only
    remove: NoTags = [],  # noqa: B006 - typer reads it only
    note: Note = None,
    archive: Archive = None,
) -> None:
    """Give runs tags and a note, or move them to the archive, which lists leave out. They are kept in the run's folder.

    Examples:
        netdfl runs tag runs/quickstart/latest --add baseline --note 'before the new rate'
        netdfl runs tag runs/old/* --archive
    """
    from netdfl.collection.labels import read_labels, write_labels
    from netdfl.record.run import open_run

    if not add and not remove and note is None and archive is None:
        raise InputError("nothing to change; give --add, --remove, --note or --archive")
    paths = [open_run(run).path for run in runs]
    changed = [read_labels(path).changed(add, remove, note, archive) for path in paths]
    for run, path, labels in zip(runs, paths, changed, strict=True):
        write_labels(path, labels)
        told = [", ".join(labels.tags) or "no tags", *(["archived"] if labels.archived else []), labels.note]
        print(f"{run}: {'; '.join(filter(None, told))}")


def rm(runs: Several, folder: In = FOLDER) -> None:
    """Throw runs away, into the folder .trash; each line says where from, and where to: move one back to have it again.

    A run that goes on is refused, and so is a path that leads out of the folder of runs.

    Examples:
        netdfl runs rm runs/quickstart/20261126T101500Z-1
        netdfl runs rm --in sweeps sweeps/loss/cells/0f3a
    """
    from netdfl.collection.finding import run_within
    from netdfl.collection.rows import place_of
    from netdfl.collection.trash import throw_away

    for path in dict.fromkeys(run_within(run, folder) for run in runs):
        name = folder / place_of(path, folder.resolve())
        print(f"{name} -> {throw_away(path, folder)}")


class QueryFormat(StrEnum):
    """The output format of a query."""

    TEXT = "text"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


Sql = Annotated[str, typer.Argument(metavar="SQL", help="One SELECT in DuckDB's SQL.")]
FormatOption = Annotated[QueryFormat, typer.Option("--format", metavar="FORMAT", help="text, csv, json or parquet.")]
AnswerFile = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write it there; parquet needs a file.")]
Memory = Annotated[str, typer.Option("--memory", metavar="SIZE", help="The most memory, like 512MiB.")]
Tables = Annotated[bool, typer.Option("--tables", help="Print the tables and their columns.")]


def query(
    sql: Sql = "",
    folder: Folder = FOLDER,
    format: FormatOption = QueryFormat.TEXT,
    out: AnswerFile = None,
    memory: Memory = "1GiB",
    tables: Tables = False,
) -> None:
    """Ask all runs of a folder by SQL: runs, keys, and the tables of their records (--tables).

    A query only reads. It can open the records of these runs and no other file.

    Examples:
        netdfl query --tables
        netdfl query "select name, verdict, accuracy from runs order by accuracy desc"
        netdfl query "select value, avg(accuracy) from runs join keys using (run) where key = 'algorithm.lr' group by 1"
        netdfl query "select * from metrics where name = 'test_loss'" sweeps --format parquet --out losses.parquet
    """
    from netdfl.collection.sql import asked, table_words
    from netdfl.collection.terminal import write_answer

    if tables or not sql:
        print(table_words())
        if not tables:
            raise InputError('a query is one SELECT over these tables, such as "select * from runs"')
        return
    if format is QueryFormat.PARQUET and out is None:
        raise InputError("parquet is written to a file; name it with --out FILE")
    with asked(folder, sql, memory=memory, writes=out if format is QueryFormat.PARQUET else None) as found:
        if format is QueryFormat.PARQUET and out is not None:
            found.write_parquet(out)
        elif out is None:
            write_answer(found, str(format), sys.stdout)
        else:
            with out.open("w", encoding="utf-8", newline="") as file:
                write_answer(found, str(format), file)
