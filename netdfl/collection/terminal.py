"""Lists of runs, comparisons and answers of queries as lines of text."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from itertools import islice
from typing import TextIO

from netdfl.collection.comparing import RunComparison
from netdfl.collection.listing import COUNTED, RunList
from netdfl.collection.rows import SETTINGS, RunRow, Value
from netdfl.collection.sql import QueryResult
from netdfl.core.units import format_bytes

USUAL = ("started", "place", "verdict", "accuracy", "error", "nbytes")
WHERE_DIFFERENT = ("algorithm", "world", "nodes", "rounds")
"""Columns that a list has only if its runs differ in them."""
SAME = "they are made alike: the same scenario, seed, modules, files and packages"
MOST_NAMED = 12
"""The most further differing keys that are named below a list."""
MOST_PRINTED = 1000
"""The most rows of a query's answer that are printed as text."""


def said(column: str, value: Value) -> str:
    """Return the value of a column as text for people, in the column's unit."""
    if value is None or value == "":
        return "–"
    if isinstance(value, str):
        return value
    match column:
        case "accuracy" | "mean_local_accuracy" | "mean_personal_accuracy":
            return f"{100 * value:.1f}%"
        case "nbytes":
            return format_bytes(value)
        case "duration_s" | "virtual_duration_s":
            return f"{value:.3g} s"
        case _:
            return f"{value:.4g}" if isinstance(value, float) else str(value)


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table as lines, each column as wide as its longest cell."""
    lines = [list(head), *map(list, rows)]
    wide = [max(len(line[place]) for line in lines) for place in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, wide, strict=True)).rstrip() for line in lines]


def run_lines(found: RunList, most: int) -> list[str]:
    """Return a list of runs as text, at most `most` of them; a line below says how many runs there are."""
    if not found.total:
        return ["there are no runs here yet; `netdfl run SCENARIO` makes one"]
    columns = list(dict.fromkeys(["place", *found.columns])) if found.columns else _usual_columns(found)
    rows = [[said(name, row.value(name)) for name in columns] for row in found.rows[:most]]
    return [*(grid(columns, rows) if rows else []), *_left_out(found, min(most, len(found.rows)), len(found.rows))]


def _usual_columns(found: RunList) -> list[str]:
    tagged = ["tags"] if any(row.labels.tags for row in found.rows) else []
    usual = (*USUAL[:-1], *found.own_metrics, USUAL[-1])
    columns = [name for name in usual if any(row.value(name) not in (None, "") for row in found.rows)]
    columns += ["stalls"] if any(row.value("stalls") for row in found.rows) else []
    columns += [name for name in WHERE_DIFFERENT if len({row.value(name) for row in found.rows}) > 1]
    return [*columns, "seed", *found.usual_keys, *tagged]


def _left_out(found: RunList, shown: int, chosen: int) -> Iterator[str]:
    more = f", of which {shown} are shown (--most)" if shown < chosen else ""
    archived = f"; {found.num_archived} archived" if found.num_archived else ""
    yield f"{chosen} of {found.total} runs{more}{archived}"
    if found.hint:
        yield found.hint
    further = found.keys[len(found.usual_keys) :]
    if further and not found.columns:
        yield f"+{len(further)} more {'key differs' if len(further) == 1 else 'keys differ'}: {_named(further)}"
        yield f"choose columns with --columns, like --columns {further[0]},accuracy"


def _named(keys: Sequence[str]) -> str:
    return ", ".join([*keys[:MOST_NAMED], *(["..."] if len(keys) > MOST_NAMED else [])])


def group_lines(found: RunList, most: int) -> list[str]:
    """Return groups of runs as text, at most `most` of them: number, verdicts, means."""
    groups = found.groups()
    wanted = found.columns or [*COUNTED, *found.own_metrics]
    figures = [figure for figure in wanted if any(group.mean(figure) is not None for group in groups)]
    rows = []
    for group in groups[:most]:
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in group.verdicts.items())
        rows.append([group.value, str(len(group.rows)), verdicts, *(said(name, group.mean(name)) for name in figures)])
    head = [found.by, "runs", "verdicts", *(f"mean {figure}" for figure in figures)]
    more = [f"{len(groups)} groups, of which {most} are shown (--most)"] if len(groups) > most else []
    differ = list(dict.fromkeys(key for group in groups[:most] for key in group.differ))
    if differ and figures:
        more.append(f"each mean is over runs that may differ in {_named(differ)}")
    return [*grid(head, rows), *more]


def show_lines(row: RunRow) -> list[str]:
    """Return one run as text: everything that a row of a list of runs has about the run."""
    labels = row.labels
    facts = [(name, said(name, value)) for name, value in row.facts.items() if value is not None]
    own = [("tags", ", ".join(row.tags)), ("note", labels.note), ("archived", "yes" if labels.archived else "")]
    head = [("run", str(row.path)), ("started", f"{row.started} UTC"), ("verdict", row.verdict)]
    head += [*(("reason", reason) for reason in row.reasons), ("wrong", row.wrong)]
    head += [("warning", warning) for warning in row.warnings]
    pairs = [(name, text) for name, text in [*head, *facts, *own] if text]
    return [*grid_of_pairs(pairs), "", *grid_of_pairs(list(row.keys.items()))]


def grid_of_pairs(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return pairs of a name and a value as lines, a line for each pair, with the values aligned."""
    wide = max((len(name) for name, _ in pairs), default=0)
    return [f"{name.ljust(wide)}  {text}" for name, text in pairs]


def compared_lines(found: RunComparison) -> list[str]:
    """Return a comparison as text: a column for each run, its name above."""
    names = [f"[{place}]" for place in range(1, len(found["runs"]) + 1)]
    told = [f"{name} {run}" for name, run in zip(names, found["runs"], strict=True)]
    rows = [
        [key, *(said(key, of[run]) for run in found["runs"])]
        for key, of in [*found["figures"].items(), *found["differences"].items()]
    ]
    warned = [
        f"{name} warning: {text}"
        for name, run in zip(names, found["runs"], strict=True)
        for text in found["warnings"].get(run, ())
    ]
    return [*told, *warned, "", *grid(["", *names], rows), *([] if found["differences"] else [_sameness(found)])]


def _sameness(found: RunComparison) -> str:
    """Return a sentence for compared runs whose scenarios are the same, except for settings that are columns.

    It names these settings, such as the seed, with the values of the runs.
    """
    apart = {name: list(dict.fromkeys(of.values())) for name in SETTINGS if (of := found["figures"].get(name))}
    told = [f"the {name}: {', '.join(said(name, x) for x in values)}" for name, values in apart.items() if values[1:]]
    return f"their scenarios are the same but for {'; '.join(told)}" if told else SAME


def write_answer(found: QueryResult, form: str, to: TextIO) -> None:
    """Write the answer of a query as `text`, `csv` or `json`, part by part."""
    head = found.columns
    if form == "text":
        rows = list(islice(found.rows(), MOST_PRINTED + 1))
        to.write("\n".join(grid(head, [[_cell(value) for value in row] for row in rows[:MOST_PRINTED]])) + "\n")
        if len(rows) > MOST_PRINTED:
            to.write(f"the first {MOST_PRINTED} rows; --format csv gives all\n")
        return
    if form == "csv":
        writer = csv.writer(to, lineterminator="\n")
        writer.writerow(head)
        for row in found.rows():
            writer.writerow(["" if value is None else _plain(value) for value in row])
        return
    first = True
    for row in found.rows():
        to.write("[\n" if first else ",\n")
        to.write(json.dumps(dict(zip(head, map(_plain, row), strict=True)), default=str, ensure_ascii=False))
        first = False
    to.write("[]\n" if first else "\n]\n")


def _plain(value: object) -> object:
    """Return a value that JSON can write: infinity and NaN, which DuckDB has, become null."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value.isoformat(sep=" ") if isinstance(value, datetime) else str(value) if isinstance(value, date) else value


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "–" if value is None else " ".join(str(value).split())
