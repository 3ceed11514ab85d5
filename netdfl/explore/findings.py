"""From the findings of an exploration to the scenario files that show them, with a sentence on what happens."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import fill
from typing import Any

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from netdfl.core.errors import InputError
from netdfl.core.files import read_plain, write_whole
from netdfl.explore.edits import Plain
from netdfl.explore.explore import Exploration, Explored, Found
from netdfl.explore.shrink import MOST_RUNS, Shrinker, Shrunk, beside
from netdfl.explore.trial import variant
from netdfl.scenario.loading.resolved import plain_to_yaml
from netdfl.scenario.model.explore import Explore
from netdfl.scenario.model.schema import Scenario

SHRUNK = "shrunk.json"


class _Kept(TypedDict):
    """What a finding was shrunk to, by the trial that showed it."""

    trial: int
    scenario: Plain


_KEPT: TypeAdapter[dict[str, _Kept]] = TypeAdapter(dict[str, _Kept])


class Findings:
    """The findings of an exploration as texts of scenarios. Each is shrunk once: its folder keeps what it came to."""

    def __init__(self, exploration: Exploration, explored: Explored) -> None:
        """Read what was kept before. Raises InputError where that is damaged."""
        self._exploration, self._explored = exploration, explored
        self._file = None if exploration.folder is None else exploration.folder / SHRUNK
        self._kept = _read(self._file) if self._file is not None and self._file.exists() else {}

    def is_shrunk(self, found: Found) -> bool:
        """Whether it was shrunk before, as the trial that shows it now."""
        return found.cause.key in self._kept and self._kept[found.cause.key]["trial"] == found.trial.number

    def written(self, found: Found) -> str:
        """What it was shrunk to before, else what was found, by one run. Raises InputError where it shows no more."""
        if self.is_shrunk(found):
            try:
                kept = beside(self._exploration.scenario, self._kept[found.cause.key]["scenario"])
                return self._text(found, self._shrink(found, kept, most_runs=1))
            except InputError:  # it was changed, or netdfl was: shrunk anew
                del self._kept[found.cause.key]
        return self._text(found, self._shrink(found, self._as_found(found), most_runs=1))

    def shrunk(self, found: Found, most_runs: int = MOST_RUNS) -> str:
        """It, as small as so many more runs make it; kept. Raises InputError where it shows no more."""
        shrunk = self._shrink(found, self._as_found(found), most_runs)
        self._kept[found.cause.key] = {"trial": found.trial.number, "scenario": shrunk.plain}
        if self._file is not None:
            write_whole(self._file, (json.dumps(self._kept) + "\n").encode())
        return self._text(found, shrunk)

    def _as_found(self, found: Found) -> Scenario:
        return variant(self._exploration.scenario, found.trial.events, found.trial.luck)

    def _shrink(self, found: Found, scenario: Scenario, most_runs: int) -> Shrunk:
        shrinker = Shrinker(self._exploration.predicates, self._exploration.executor, most_runs)
        return shrinker.shrink(scenario, found.cause.key)

    def _text(self, found: Found, shrunk: Shrunk) -> str:
        how = f"Found by `netdfl explore`, seed {self._exploration.seed}, run {found.trial.number}"
        rate = self._explored.rate(found)
        return write_finding(shrunk, f"{how}: {rate} of the runs that were drawn by themselves.")


def _read(file: Path) -> dict[str, _Kept]:
    try:
        return _KEPT.validate_json(read_plain(file))
    except ValidationError as error:
        raise InputError(f"{file} is damaged; delete it, and what was found is shrunk anew") from error


_SHORT = {"algorithm": "name", "topology": "kind", "weights": "kind", "selection": "kind", "delivery": "kind"}
_SHORT_LINKS = {"latency": ("dist", "constant", "delay"), "loss": ("model", "bernoulli", "probability")}


def write_finding(shrunk: Shrunk, note: str = "") -> str:
    """The YAML of a shrunk finding, headed by what happens, and the hash by which its replay is known."""
    text = f"{shrunk.cause.text}{'' if shrunk.cause.text.endswith('.') else '.'}"
    lines = [fill(text, 116, initial_indent="# ", subsequent_indent="# ", break_long_words=False)]
    if note:
        lines.append(fill(note, 116, initial_indent="# ", subsequent_indent="# "))
    if shrunk.run.event_log_hash:
        lines.append(f"# Event log: {shrunk.run.event_log_hash}")
    return "\n".join([*lines, plain_to_yaml(_short(shrunk.plain))])


def _short(plain: Plain) -> Plain:
    """In the short forms that people write."""
    found = {key: _shortened(key, value) for key, value in plain.items()}
    for selector, rules in found.get("links", {}).items():
        found["links"][selector] = {key: _short_rule(key, value) for key, value in rules.items()}
    find = found.pop("explore", {}).get("find")
    if find not in (None, Explore.model_fields["find"].default):
        found["explore"] = {"find": find}
    return {key: value for key, value in found.items() if value not in ({}, [])}


def _shortened(key: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {name: _shortened(name, each) for name, each in value.items()} if key != "links" else dict(value)
    return inner[_SHORT[key]] if key in _SHORT and list(inner) == [_SHORT[key]] else inner


def _short_rule(key: str, value: Any) -> Any:
    if key not in _SHORT_LINKS or not isinstance(value, dict):
        return value
    choice, default, short = _SHORT_LINKS[key]
    return value[short] if value.get(choice, default) == default and set(value) <= {choice, short} else value
