"""Several runs side by side: their curves, and the differences of their scenarios."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from netdfl.collection.filters import as_number
from netdfl.collection.keys import Keys, differing, group_names, scenario_keys
from netdfl.collection.rows import read_row
from netdfl.core.errors import NetdflError
from netdfl.record.provenance import differing_sources, read_sources
from netdfl.record.run import Run, open_run
from netdfl.report.data.frame import TIME, shorten, whole

CURVES = ("error", "consensus_distance", "weight_sum")
"""Metrics whose curves are compared, besides those by which models are evaluated."""
MOST_COMPARED = 60


def compare(runs: Sequence[tuple[str, Path]], root: Path) -> dict[str, Any]:
    """Return curves and final metrics of each run of the folder `root`, and the keys and sources in which they differ.

    `groups` has, for each run, the name of the curve that stands for all runs that differ from it only in the seed;
    `names` has the name of the run's own curve.
    """
    curves, scenarios, made, wrong = {}, {}, {}, {}
    for name, path in runs[:MOST_COMPARED]:
        try:
            run, made[name] = open_run(path), read_sources(path)
            curves[name], scenarios[name] = _known_curves(run), scenario_keys(run.scenario_text)
        except NetdflError as error:
            wrong[name] = str(error)
    for source, of in differing_sources(made).items():  # so runs of two texts of a module are two curves
        scenarios = {name: {**keys, source: of.get(name, "")} for name, keys in scenarios.items()}
    differ = differing(list(scenarios.values()))
    rows = {name: read_row(path, root) for name, path in runs[:MOST_COMPARED]}
    return {
        "curves": curves,
        "figures": {name: {**row.facts, "started": row.started, "place": row.place} for name, row in rows.items()},
        "differences": {key: {name: each.get(key, "") for name, each in scenarios.items()} for key in differ},
        "numbers": {key: {name: _number(each.get(key, "")) for name, each in scenarios.items()} for key in differ},
        **_names(scenarios, {name: row.place for name, row in rows.items()}),
        "wrong": wrong,
        "left_out": max(0, len(runs) - MOST_COMPARED),
    }


def _names(scenarios: Mapping[str, Keys], places: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the names of the runs' curves; `places` has each run's path in the folder.

    In `groups`, runs that differ only in the seed share a name, unless two of them have the same seed as well; then
    each has its own name, as in `names`.
    """
    groups = group_names(scenarios)
    varied = len(set(groups.values())) > 1
    alone = {run: f"{group} · {places[run]}" if varied else places[run] for run, group in groups.items()}
    num_alike = Counter((group, scenarios[run].get("seed")) for run, group in groups.items())
    repeated = {group for (group, _), number in num_alike.items() if number > 1}
    return {
        "groups": {run: alone[run] if group in repeated else group for run, group in groups.items()},
        "names": alone,
    }


def _number(text: str) -> float | None:
    """Return the number in the text of a value, in base units; None if it is not a number."""
    found = as_number(text)
    return None if found is None else found.value


def _known_curves(run: Run) -> dict[str, Any]:
    """Return the curves of a run. For a finished run they are read once and then kept in memory."""
    try:
        state = (run.path / "result.json").lstat()
    except OSError:
        return _curves(run)
    return _ended_curves(run.path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=512)
def _ended_curves(path: Path, mtime_ns: int, size: int) -> dict[str, Any]:
    return _curves(Run(path))


def _curves(run: Run) -> dict[str, Any]:
    rows = run.rows(
        "SELECT name, round, at_s, value FROM metrics WHERE node IS NULL AND value IS NOT NULL "
        "AND (list_contains(?, name) OR regexp_matches(name, '^(test|mean_local|mean_personal)_')) "
        "ORDER BY name, round, at_s LIMIT 100000",
        [list(CURVES)],
    )
    sent = dict(run.rows("SELECT round, sum(sum(nbytes)) OVER (ORDER BY round) FROM round_totals GROUP BY round"))
    until = max(sent.values(), default=0)
    found: dict[str, Any] = {}
    for name in dict.fromkeys(row[0] for row in rows):
        of = [row for row in rows if row[0] == name]
        found[name] = {
            "round": whole([row[1] for row in of]),
            "at_s": shorten([row[2] for row in of], TIME),
            "nbytes": [int(sent.get(row[1], until)) for row in of],
            "value": shorten([row[3] for row in of], 5),
        }
    return found
