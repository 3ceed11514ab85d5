"""A row about each run: where it lies, when it began, how it ended, its metrics, labels and keys."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from netdfl.collection.keys import Keys, scenario_keys, value_of
from netdfl.collection.labels import NO_LABELS, Labels, read_labels
from netdfl.core.errors import NetdflError
from netdfl.core.files import read_plain
from netdfl.record.directory import is_held
from netdfl.record.forms import RESULT, damaged, read_form
from netdfl.record.judge import is_measured
from netdfl.record.provenance import PROVENANCE, Sources, differing_sources, read_sources
from netdfl.record.run import Run

Value: TypeAlias = str | float | None
Facts: TypeAlias = Mapping[str, Value]
NAMED = "runs"
"""The folder beside a sweep's runs that has a link with a readable name to each of them."""
SETTINGS = ("name", "world", "algorithm", "nodes", "rounds", "seed")
DURATIONS = ("duration_s", "virtual_duration_s")
"""Columns in seconds: real seconds, and seconds by the clock of a simulated run."""
FACTS = (*SETTINGS, "accuracy", "loss", "error", "nbytes", *DURATIONS, "stalls")
COLUMNS = ("started", "place", "verdict", "state", *FACTS, "tags", "note", "reasons")
"""The columns of a row, beside the keys of its scenario."""
OF_FLEETS = ("train_loss", "consensus_distance", "weight_sum")
"""Final metrics of a run that, like the metrics of tasks, are columns only in some lists."""
OTHER_NAMES = {
    "date": "started",
    "scenario": "name",
    "where": "place",
    "sent": "nbytes",
    "took": "duration_s",
    "tag": "tags",
    "why": "reasons",
    "test_accuracy": "accuracy",
    "test_loss": "loss",
}
MOST_METRICS = 40
"""The most metrics that a row has beside its columns."""
MOST_REASONS, MOST_REASON = 10, 1000
"""The most reasons of a verdict, and warnings, that a row has, and the most letters of each."""
_STAMP = re.compile(r"(\d{8}T\d{6})Z-")


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """A row about one run.

    Attributes:
        path: the directory of the run.
        place: the path of the run within the folder that is listed.
        started: the time in UTC at which the run began.
        state: `finished`, `running`, `ended` (without a result) or `damaged`.
        verdict: the verdict, or words in place of one.
        reasons: the reasons of the verdict, such as the sentence of a stall.
        warnings: what a reader has to know before the figures.
        wrong: the reason why the run can't be read; empty if it can.
        facts: the last values of the metrics of the run, and its main settings, by column; beside `FACTS` also
            metrics that its task defines, such as `test_mae`.
        rounds_done: the rounds that an unfinished run has done; None if they are not known.
        tags: the tags of the run: those of its labels and its scenario, then the names of the folders around the run.
        labels: the labels that somebody gave to the run.
        keys: the keys of its scenario with their values; among several runs also the sources in which these differ.
        sources: its modules, named files and packages; None if they are not known.
    """

    path: Path
    place: str
    started: str
    state: str
    verdict: str
    reasons: Sequence[str] = ()
    warnings: Sequence[str] = ()
    wrong: str = ""
    facts: Facts = field(default_factory=dict)
    rounds_done: float | None = None
    tags: Sequence[str] = ()
    labels: Labels = NO_LABELS
    keys: Keys = field(default_factory=dict)
    sources: Sources | None = None

    def value(self, column: str) -> Value:
        """Return the value of a column, or of a key of the scenario; None where the run has none."""
        match column:
            case "started" | "place" | "verdict" | "state":
                return str(getattr(self, column))
            case "tags":
                return ", ".join(self.tags)
            case "note":
                return self.labels.note
            case "reasons":
                return "; ".join(self.reasons)
            case _ if column in FACTS or column in self.facts:
                return self.facts.get(column)
            case _:
                return value_of(self.keys, column)

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON data, for a page or another program."""
        wrong = {"wrong": self.wrong} if self.wrong else {}
        done = {} if self.rounds_done is None else {"rounds_done": self.rounds_done}
        own = {"own_tags": list(self.labels.tags), "note": self.labels.note, "archived": self.labels.archived}
        told = {name: getattr(self, name) for name in ("place", "started", "state", "verdict")}
        lists = {name: list(getattr(self, name)) for name in ("tags", "reasons", "warnings")}
        return {**self.facts, **told, **wrong, **done, **own, **lists}


def metric_names(rows: Iterable[RunRow]) -> list[str]:
    """Return the names of the metrics that runs have beside the columns `FACTS`; metrics of tasks come first."""
    found = {name for row in rows for name in row.facts}.difference(FACTS)
    return sorted(found, key=lambda name: (not name.startswith("test_"), name in OF_FLEETS, name))


def read_rows(paths: Iterable[Path], root: Path) -> list[RunRow]:
    """Return the rows of several runs in the folder `root`, with keys for the sources in which the runs differ."""
    return tell_apart([read_row(path, root) for path in paths])


def tell_apart(rows: Sequence[RunRow]) -> list[RunRow]:
    """Return the rows with further keys: the modules, named files and packages in which these runs differ.

    Runs with different versions of a module are different experiments, even if their scenarios are the same.
    """
    differ = differing_sources({str(row.path): row.sources for row in rows})
    return [
        replace(row, keys={**{source: of[str(row.path)] for source, of in differ.items()}, **row.keys})
        if row.sources is not None
        else row
        for row in rows
    ]


def read_row(path: Path, root: Path) -> RunRow:
    """Return the row of the run at `path`, in the folder `root`; for an unreadable run, with the reason."""
    place = place_of(path, root)
    row: dict[str, Any] = {}
    labels = NO_LABELS
    try:
        row = _figures(path)
        row |= {"keys": _keys(path / "scenario.yaml")}
        row |= {"facts": {**_planned(row["keys"]), **row.get("facts", {})}}
        labels = read_labels(path)
        row |= {"sources": _sources(path / PROVENANCE)}
    except (NetdflError, OSError) as error:
        row |= {"wrong": str(error)}
    given, folders = sorted({*row.pop("tags", ()), *labels.tags}), sorted(place.split("/")[:-1])
    tags = list(dict.fromkeys([*given, *folders]))
    return RunRow(path=path, place=place, started=_started(path), labels=labels, tags=tags, **row)


def _planned(keys: Keys) -> Facts:
    """Return the facts that a scenario states about its run, for a run that has no result."""
    texts = {"name": keys.get("name"), "world": keys.get("world.kind"), "algorithm": keys.get("algorithm.name")}
    numbers = {name: int(keys[name]) for name in ("nodes", "rounds", "seed") if keys.get(name, "").isdecimal()}
    return {**{name: text for name, text in texts.items() if text is not None}, **numbers}


def _figures(path: Path) -> dict[str, Any]:
    try:
        state = (path / "result.json").lstat()
        return dict(_of_result(path, state.st_mtime_ns, state.st_size))
    except FileNotFoundError:
        return _unfinished(path)
    except (NetdflError, OSError) as error:
        return {"state": "damaged", "verdict": "can't be read", "wrong": str(error)}


def _started(path: Path) -> str:
    """Return the time in UTC at which a run began, by its name, else by the time of its scenario's file.

    It is empty if neither is known.
    """
    stamp = _STAMP.match(path.name)
    try:
        if stamp is not None:
            began = datetime.strptime(stamp[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
        else:
            began = datetime.fromtimestamp((path / "scenario.yaml").lstat().st_mtime, UTC)
    except (OSError, ValueError, OverflowError):
        return ""
    return f"{began:%Y-%m-%d %H:%M:%S}"


def place_of(path: Path, root: Path) -> str:
    """Return the name by which lists call the run at `path`: its path in the folder `root`, by a link if it has one."""
    return str(_as_named(path, root).relative_to(root)) if path != root else path.name


def _as_named(path: Path, root: Path) -> Path:
    """Return the path of the readable link to a sweep's run; `path` itself if there is no link."""
    links = path.parent.with_name(NAMED)
    if root not in links.parents:
        return path
    try:
        return links / _names(links, links.stat().st_mtime_ns)[f"../{path.parent.name}/{path.name}"]
    except (OSError, KeyError):
        return path


@lru_cache(maxsize=64)
def _names(folder: Path, mtime_ns: int) -> dict[str, str]:
    """Return the name of each link in a folder, by its target.

    Results are cached; a new `mtime_ns`, the time of the folder's last change, makes the cache read the links again.
    """
    with os.scandir(folder) as entries:
        return {os.readlink(entry): entry.name for entry in entries if entry.is_symlink()}


def _keys(scenario: Path) -> Keys:
    state = scenario.lstat()
    return _keys_then(scenario, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4096)
def _keys_then(scenario: Path, mtime_ns: int, size: int) -> Keys:
    return scenario_keys(read_plain(scenario))


def _sources(file: Path) -> Sources | None:
    try:
        state = file.lstat()
    except FileNotFoundError:
        return None
    return _sources_then(file, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4096)
def _sources_then(file: Path, mtime_ns: int, size: int) -> Sources | None:
    return read_sources(file.parent)


@lru_cache(maxsize=4096)
def _of_result(path: Path, mtime_ns: int, size: int) -> Mapping[str, Any]:
    with damaged(path, "shown"):
        result = read_form(path / "result.json", RESULT) or {}
        accuracy = result["test_accuracy"]["average_model"]["last"]
        texts = {"name": str(result["scenario"]), **{name: str(result[name]) for name in ("world", "algorithm")}}
        numbers = {name: _number(result[name]) for name in ("nodes", "rounds", "seed", "duration_s")}
        numbers |= {"virtual_duration_s": _number(result.get("virtual_duration_s"))}
        numbers |= {"accuracy": _number(accuracy), "loss": _number(result["test_loss"])}
        numbers |= {"stalls": sum(len(result.get(name) or ()) for name in ("stalls", "deadlocks"))}
        numbers |= {"error": _number(result.get("error")), "nbytes": _number(result["bytes_sent"])}
        return {
            "state": "finished",
            "verdict": str(result["verdict"]),
            "reasons": [str(reason)[:MOST_REASON] for reason in result.get("reasons", ())][:MOST_REASONS],
            "warnings": [str(each["text"])[:MOST_REASON] for each in result.get("warnings", ())][:MOST_REASONS],
            "facts": {**texts, **numbers, **_metrics(result)},
            "tags": [str(tag) for tag in result.get("tags", ())][:20],
        }


def _metrics(result: Mapping[str, Any]) -> Mapping[str, float]:
    """Return the last values of the metrics of a result that are no columns."""
    courses = {name: course["last"] for name, course in (result.get("metrics") or {}).items() if is_measured(name)}
    found = {
        name: _number(value) for name, value in [*courses.items(), *((name, result.get(name)) for name in OF_FLEETS)]
    }
    known = [(name, value) for name, value in found.items() if value is not None and name not in OTHER_NAMES]
    return dict(known[:MOST_METRICS])


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
                row |= {"facts": {"name": fleet["scenario"], "rounds": fleet["rounds"]}}
                row |= {"rounds_done": fleet["rounds_done"]}
    except NetdflError as error:
        row |= {"state": "damaged", "wrong": str(error)}
    return row
