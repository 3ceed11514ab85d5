"""From the findings of an exploration to the scenario files that show them, with a sentence on what happens."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple, NotRequired

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from netdfl.core.errors import InputError
from netdfl.core.files import read_plain, write_whole
from netdfl.diagnosis import words
from netdfl.explore.cause import Cause, in_words, is_stall
from netdfl.explore.edits import Plain
from netdfl.explore.ends import Ends, find_ends, tried_in
from netdfl.explore.explore import Exploration, Explored, Found
from netdfl.explore.shrink import MOST_RUNS, Shrinker, Shrunk, beside
from netdfl.explore.trial import variant
from netdfl.scenario.loading.resolved import plain_to_yaml
from netdfl.scenario.model.explore import Explore
from netdfl.scenario.model.schema import Scenario

SHRUNK = "shrunk.json"
MOST_LISTED = 5
"""So many variants are told of a finding."""


class _Kept(TypedDict):
    """The scenario to which a finding was shrunk, by the trial that showed it; and what ended which of its trials."""

    trial: int
    scenario: Plain
    ends: NotRequired[tuple[list[str], list[int]]]


_KEPT: TypeAdapter[dict[str, _Kept]] = TypeAdapter(dict[str, _Kept])


class Written(NamedTuple):
    """The text of a scenario that shows a finding, and the cause of the run that it shows."""

    text: str
    cause: Cause


class Findings:
    """The findings of an exploration as texts of scenarios. Each is shrunk once: its folder keeps what it came to."""

    def __init__(self, exploration: Exploration, explored: Explored) -> None:
        """Read what was kept before. Raises InputError where that is damaged."""
        self._exploration, self._explored = exploration, explored
        self._file = None if exploration.folder is None else exploration.folder / SHRUNK
        self._kept = _read(self._file) if self._file is not None and self._file.exists() else {}
        self._ends: dict[str, Ends] = {}

    def is_shrunk(self, found: Found) -> bool:
        """Whether it was shrunk before, as the trial that shows it now."""
        return found.cause.key in self._kept and self._kept[found.cause.key]["trial"] == found.trial.number

    def written(self, found: Found) -> Written:
        """What it was shrunk to before, else what was found, by one run. Raises InputError where it shows no more."""
        if self.is_shrunk(found):
            try:
                kept = beside(self._exploration.scenario, self._kept[found.cause.key]["scenario"])
                return self._text(found, self._shrink(found, kept, most_runs=1))
            except InputError:  # it was changed, or netdfl was: shrunk anew
                del self._kept[found.cause.key]
        return self._text(found, self._shrink(found, self._as_found(found), most_runs=1))

    def shrunk(self, found: Found, most_runs: int = MOST_RUNS) -> Written:
        """It, as small as so many more runs make it; kept. Raises InputError where it shows no more."""
        shrunk = self._shrink(found, self._as_found(found), most_runs)
        self._keep(found, {"trial": found.trial.number, "scenario": shrunk.plain})
        return self._text(found, shrunk)

    def tell(self, found: Found) -> list[str]:
        """Sentences on how often it was met, how it looked, and what would end it, where that was tried."""
        return tell_of(found, self._explored, self._ends.get(found.cause.key))

    def ends(self, found: Found) -> Ends | None:
        """The settings that end all runs of its kind: tried once, and kept; None of what is no stall."""
        if not is_stall(found.cause.key):
            return None
        key, trials = found.cause.key, tuple(trial.number for trial in tried_in(found))
        settings, tried = self._kept[key].get("ends", ([], [])) if key in self._kept else ([], [])
        ends = Ends(tuple(settings), tuple(tried))
        if ends.trials != trials:
            ends = find_ends(found, self._exploration.scenario, self._exploration.executor)
        self._ends[key] = ends
        return ends

    def _keep(self, found: Found, kept: _Kept) -> None:
        ends = self._ends.get(found.cause.key)
        if ends is not None:
            kept["ends"] = list(ends.settings), list(ends.trials)
        self._kept[found.cause.key] = kept
        if self._file is not None:
            write_whole(self._file, (json.dumps(self._kept) + "\n").encode())

    def _as_found(self, found: Found) -> Scenario:
        return variant(self._exploration.scenario, found.trial.events, found.trial.luck)

    def _shrink(self, found: Found, scenario: Scenario, most_runs: int) -> Shrunk:
        shrinker = Shrinker(self._exploration.predicates, self._exploration.executor, most_runs)
        return shrinker.shrink(scenario, found.cause.key)

    def _text(self, found: Found, shrunk: Shrunk) -> Written:
        how = f"Found by `netdfl explore`, seed {self._exploration.seed}, run {found.trial.number}"
        text = write_finding(shrunk, " ".join([f"{how}:", *self.tell(found)]))
        return Written(text, shrunk.cause)


def tell_of(found: Found, explored: Explored, ends: Ends | None) -> list[str]:
    """Sentences on how often a finding was met, in which rounds and how it looked, and what would end it."""
    many, rounds = len(found.numbers), f" in {words.rounds(found.rounds)}" if found.rounds else ""
    rate = f"of those that were drawn by themselves {explored.rate(found)}"
    said = [f"{many} run{'s' * (many != 1)}{rounds}; {rate}."]
    if len(found.variants) > 1:
        listed = words.listed(
            (f"{num} {in_words(each)}" for each, num in found.variants.most_common()), most=MOST_LISTED
        )
        said.append(f"Its variants: {listed}.")
    return [*said, *([str(ends)] if ends is not None else [])]


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
