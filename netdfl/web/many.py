"""Several runs side by side: a row of each, their curves, and the differences of their scenarios."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from netdfl.core.errors import NetdflError
from netdfl.core.types import Json
from netdfl.record.directory import is_held
from netdfl.record.forms import RESULT, damaged, read_form
from netdfl.record.run import Run, open_run
from netdfl.report.data.frame import TIME, shorten, whole

CURVES = ("error", "consensus_distance", "weight_sum")
"""Metrics that are compared beside those by which models are judged."""
MOST_COMPARED = 60
NOT_GROUPED = ("seed", "name")
NAMED = "runs"
"""The folder of a sweep with a link to each of its runs."""
MOST_KEYS = 5000


def summary(path: Path, root: Path) -> dict[str, Any]:
    """Return a row of the table of runs; for an unreadable run, the reason."""
    place = str(_as_named(path, root).relative_to(root)) if path != root else path.name
    try:
        state = (path / "result.json").lstat()
        row = dict(_of_result(path, state.st_mtime_ns, state.st_size))
    except FileNotFoundError:
        row = _unfinished(path)
    except (NetdflError, OSError) as error:
        row = {"state": "damaged", "verdict": "can't be read", "wrong": str(error)}
    return row | {"place": place, "tags": sorted({*row.get("tags", ()), *place.split("/")[:-1]})}


def _as_named(path: Path, root: Path) -> Path:
    """Return the readable path of a sweep's run: a link to it, in the folder beside the cells'."""
    links = path.parent.with_name(NAMED)
    if root not in links.parents:
        return path
    try:
        return links / _names(links, links.stat().st_mtime_ns)[f"../{path.parent.name}/{path.name}"]
    except (OSError, KeyError):
        return path


@lru_cache(maxsize=64)
def _names(folder: Path, mtime_ns: int) -> dict[str, str]:
    """Return the links of a folder, by target."""
    with os.scandir(folder) as entries:
        return {os.readlink(entry): entry.name for entry in entries if entry.is_symlink()}


@lru_cache(maxsize=4096)
def _of_result(path: Path, mtime_ns: int, size: int) -> Json:
    with damaged(path, "shown"):
        result = read_form(path / "result.json", RESULT) or {}
        accuracy = result["test_accuracy"]["average_model"]["last"]
        return {
            "state": "finished",
            "verdict": str(result["verdict"]),
            "name": str(result["scenario"]),
            "world": str(result["world"]),
            "algorithm": str(result["algorithm"]),
            "nodes": _number(result["nodes"]),
            "rounds": _number(result["rounds"]),
            "seed": _number(result["seed"]),
            "accuracy": _number(accuracy),
            "loss": _number(result["test_loss"]),
            "error": _number(result.get("error")),
            "nbytes": _number(result["bytes_sent"]),
            "duration_s": _number(result["duration_s"]),
            "tags": [str(tag) for tag in result.get("tags", ())][:20],
        }


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _unfinished(path: Path) -> dict[str, Any]:
    going_on = is_held(path)
    state = "running" if going_on else "ended"
    row: dict[str, Any] = {"state": state, "verdict": "running" if going_on else "no verdict"}
    try:
        with damaged(path, "shown"):
            fleet = Run(path).fleet
            if fleet is not None:
                row |= {"name": fleet["scenario"], "rounds": fleet["rounds"], "rounds_done": fleet["rounds_done"]}
    except NetdflError as error:
        row |= {"state": "damaged", "wrong": str(error)}
    return row


def compare(runs: Sequence[tuple[str, Path]]) -> dict[str, Any]:
    """Return curves of each run, the keys in which their scenarios differ, and the group of each run."""
    curves, scenarios, wrong = {}, {}, {}
    for name, path in runs[:MOST_COMPARED]:
        try:
            run = open_run(path)
            curves[name], scenarios[name] = _curves(run), _keys(run.scenario_text)
        except NetdflError as error:
            wrong[name] = str(error)
    keys = list(dict.fromkeys(key for each in scenarios.values() for key in each))
    differ = [key for key in keys if len({each.get(key) for each in scenarios.values()}) > 1]
    return {
        "curves": curves,
        "differences": {key: {name: each.get(key, "") for name, each in scenarios.items()} for key in differ},
        "groups": group_names(scenarios),
        "wrong": wrong,
        "left_out": max(0, len(runs) - MOST_COMPARED),
    }


def group_names(scenarios: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return a name for each run's group: runs whose scenarios differ in the seed alone share a name.

    A name has only the keys that are needed to tell the groups apart.
    """
    keys = list(dict.fromkeys(key for each in scenarios.values() for key in each if key not in NOT_GROUPED))
    differ = [key for key in keys if len({each.get(key) for each in scenarios.values()}) > 1]

    def told_apart(by: Sequence[str]) -> int:
        return len({tuple(each.get(key) for key in by) for each in scenarios.values()})

    groups, needed = told_apart(differ), list(differ)
    for key in reversed(differ):
        fewer = [each for each in needed if each != key]
        needed = fewer if told_apart(fewer) == groups else needed
    return {run: _group_name(each, needed) for run, each in scenarios.items()}


def _group_name(scenario: Mapping[str, str], keys: Sequence[str]) -> str:
    told = [f"{key}: {scenario[key]}" if key in scenario else f"no {key}" for key in keys]
    return ", ".join([scenario.get("name", ""), *told]).removeprefix(", ")


def _curves(run: Run) -> dict[str, Any]:
    rows = run.rows(
        "SELECT name, round, at_s, value FROM metrics WHERE node IS NULL AND value IS NOT NULL "
        "AND (list_contains(?, name) OR regexp_matches(name, '^(test|mean_local|mean_personal)_')) "
        "ORDER BY name, round, at_s LIMIT 100000",
        [list(CURVES)],
    )
    found: dict[str, Any] = {}
    for name in dict.fromkeys(row[0] for row in rows):
        of = [row for row in rows if row[0] == name]
        found[name] = {
            "round": whole([row[1] for row in of]),
            "at_s": shorten([row[2] for row in of], TIME),
            "value": shorten([row[3] for row in of], 5),
        }
    return found


def _keys(text: str) -> dict[str, str]:
    """Return the keys of a scenario, such as `links.default.loss`, each with its value as text."""
    from netdfl.scenario.loading.document import parse

    found: dict[str, str] = {}

    def walk(value: object, way: str) -> None:
        if len(found) >= MOST_KEYS:
            return
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, f"{way}.{key}" if way else str(key))
        elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
            for place, inner in enumerate(value):
                walk(inner, f"{way}[{place}]")
        else:
            found[way] = str(value)[:400]

    walk(parse(text, "scenario.yaml").data, "")
    return found
