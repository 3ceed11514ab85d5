"""Runs side by side: their metrics, and the keys and sources in which they differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from netdfl.collection.keys import differing
from netdfl.collection.rows import FACTS, RunRow, Value, metric_names, read_row, tell_apart


class RunComparison(TypedDict):
    """A comparison of runs.

    Attributes:
        runs: the names of the runs.
        warnings: for each run that has warnings, what a reader has to know before its figures.
        figures: for each column of a list of runs in which some run has a value, the value of each run.
        differences: for each key in which the scenarios differ, the value of each run; and for each module, named file
            or package, a part of its digest or its version.
    """

    runs: list[str]
    warnings: dict[str, list[str]]
    figures: dict[str, dict[str, Value]]
    differences: dict[str, dict[str, Value]]


def compare(runs: Mapping[str, Path]) -> RunComparison:
    """Return metrics and other results of runs (directories by name), and the keys in which their scenarios differ."""
    found = tell_apart([read_row(path, path.parent) for path in runs.values()])
    rows = dict(zip(runs, found, strict=True))
    keys = differing([row.keys for row in rows.values()])
    columns = ("started", "verdict", *FACTS, *metric_names(rows.values()))
    return {
        "runs": list(rows),
        "warnings": {name: list(row.warnings) for name, row in rows.items() if row.warnings},
        "figures": {name: _of(rows, name) for name in columns if any(v is not None for v in _of(rows, name).values())},
        "differences": {key: _of(rows, key) for key in keys if key not in columns},
    }


def _of(rows: Mapping[str, RunRow], column: str) -> dict[str, Value]:
    return {name: row.value(column) for name, row in rows.items()}
