"""The findings of an exploration (one for each cause of failure) as scenario files that reproduce them."""

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
from netdfl.explore.cause import FailureCause, in_words, is_stall
from netdfl.explore.edits import Plain
from netdfl.explore.ends import EndingSettings, find_ends, tried_in
from netdfl.explore.explore import Discovery, Exploration, ExplorationResult
from netdfl.explore.shrink import MOST_RUNS, Shrinker, ShrunkScenario, beside
from netdfl.explore.trial import variant
from netdfl.scenario.loading.resolved import plain_to_yaml
from netdfl.scenario.model.explore import Explore
from netdfl.scenario.model.schema import Scenario

SHRUNK = "shrunk.json"
MOST_LISTED = 5
"""The most variants (sets of reasons) of one stall that are listed."""


class _KeptFinding(TypedDict):
    """A stored finding: its example's trial number, the shrunk scenario, and the settings that prevent its stall.

    With the settings come the numbers of the trials in which they were tried.
    """

    trial: int
    scenario: Plain
    ends: NotRequired[tuple[list[str], list[int]]]


_KEPT: TypeAdapter[dict[str, _KeptFinding]] = TypeAdapter(dict[str, _KeptFinding])


class FindingText(NamedTuple):
    """The text of a scenario file that reproduces a failure, and the cause by which its run fails."""

    text: str
    cause: FailureCause


class FindingScenarios:
    """The findings of an exploration (one for each cause of failure) as scenario texts, each shrunk once and stored."""

    def __init__(self, exploration: Exploration, explored: ExplorationResult) -> None:
        """Read the shrunk scenarios stored in the exploration's folder. Raises InputError if the file is damaged."""
        self._exploration, self._explored = exploration, explored
        self._file = None if exploration.folder is None else exploration.folder / SHRUNK
        self._kept = _read(self._file) if self._file is not None and self._file.exists() else {}
        self._ends: dict[str, EndingSettings] = {}

    def is_shrunk(self, found: Discovery) -> bool:
        """Return whether a shrunk scenario is stored of the trial that is now the finding's example."""
        return found.cause.key in self._kept and self._kept[found.cause.key]["trial"] == found.trial.number

    def written(self, found: Discovery) -> FindingText:
        """Run the stored shrunk scenario, or else the example trial's scenario, once; return the text of its file.

        Raises InputError if the scenario no longer fails by the same cause.
        """
        if self.is_shrunk(found):
            try:
                kept = beside(self._exploration.scenario, self._kept[found.cause.key]["scenario"])
                return self._text(found, self._shrink(found, kept, most_runs=1))
            except InputError:  # it was changed, or netdfl was: shrunk anew
                del self._kept[found.cause.key]
        return self._text(found, self._shrink(found, self._as_found(found), most_runs=1))

    def shrunk(self, found: Discovery, most_runs: int = MOST_RUNS) -> FindingText:
        """Shrink the scenario of the finding's example in at most `most_runs` further runs, and store the result.

        Raises InputError if the example no longer fails by the same cause.
        """
        shrunk = self._shrink(found, self._as_found(found), most_runs)
        self._keep(found, {"trial": found.trial.number, "scenario": shrunk.plain})
        return self._text(found, shrunk)

    def tell(self, found: Discovery) -> list[str]:
        """Return sentences about the finding: its frequency, variants, and the settings that prevent its stall."""
        return tell_of(found, self._explored, self._ends.get(found.cause.key))

    def ends(self, found: Discovery) -> EndingSettings | None:
        """Return the settings that prevent the finding's stall in all tried runs, determined once; None if no stall."""
        if not is_stall(found.cause.key):
            return None
        key, trials = found.cause.key, tuple(trial.number for trial in tried_in(found))
        settings, tried = self._kept[key].get("ends", ([], [])) if key in self._kept else ([], [])
        ends = EndingSettings(tuple(settings), tuple(tried))
        if ends.trials != trials:
            ends = find_ends(found, self._exploration.scenario, self._exploration.executor)
        self._ends[key] = ends
        return ends

    def _keep(self, found: Discovery, kept: _KeptFinding) -> None:
        ends = self._ends.get(found.cause.key)
        if ends is not None:
            kept["ends"] = list(ends.settings), list(ends.trials)
        self._kept[found.cause.key] = kept
        if self._file is not None:
            write_whole(self._file, (json.dumps(self._kept) + "\n").encode())

    def _as_found(self, found: Discovery) -> Scenario:
        return variant(self._exploration.scenario, found.trial.events, found.trial.luck)

    def _shrink(self, found: Discovery, scenario: Scenario, most_runs: int) -> ShrunkScenario:
        shrinker = Shrinker(self._exploration.predicates, self._exploration.executor, most_runs)
        return shrinker.shrink(scenario, found.cause.key)

    def _text(self, found: Discovery, shrunk: ShrunkScenario) -> FindingText:
        how = f"Found by `netdfl explore`, seed {self._exploration.seed}, run {found.trial.number}"
        text = write_finding(shrunk, " ".join([f"{how}:", *self.tell(found)]))
        return FindingText(text, shrunk.cause)


def tell_of(found: Discovery, explored: ExplorationResult, ends: EndingSettings | None) -> list[str]:
    """Return sentences about a finding: its frequency, rounds, variants, and the settings that prevent it, if tried."""
    many, rounds = len(found.numbers), f" in {words.rounds(found.rounds)}" if found.rounds else ""
    rate = f"of those that were drawn by themselves {explored.rate(found)}"
    said = [f"{many} run{'s' * (many != 1)}{rounds}; {rate}."]
    if len(found.variants) > 1:
        listed = words.listed(
            (f"{num} {in_words(each)}" for each, num in found.variants.most_common()), most=MOST_LISTED
        )
        said.append(f"Its variants: {listed}.")
    return [*said, *([str(ends)] if ends is not None else [])]


def _read(file: Path) -> dict[str, _KeptFinding]:
    try:
        return _KEPT.validate_json(read_plain(file))
    except ValidationError as error:
        raise InputError(f"{file} is damaged; delete it, and what was found is shrunk anew") from error


_SHORT = {"algorithm": "name", "topology": "kind", "weights": "kind", "selection": "kind", "delivery": "kind"}
_SHORT_LINKS = {"latency": ("dist", "constant", "delay"), "loss": ("model", "bernoulli", "probability")}


def write_finding(shrunk: ShrunkScenario, note: str = "") -> str:
    """Return the YAML of a shrunk failing scenario; comments above it give the cause, `note` and event log's hash."""
    text = f"{shrunk.cause.text}{'' if shrunk.cause.text.endswith('.') else '.'}"
    lines = [fill(text, 116, initial_indent="# ", subsequent_indent="# ", break_long_words=False)]
    if note:
        lines.append(fill(note, 116, initial_indent="# ", subsequent_indent="# "))
    if shrunk.run.event_log_hash:
        lines.append(f"# Event log: {shrunk.run.event_log_hash}")
    return "\n".join([*lines, plain_to_yaml(_short(shrunk.plain))])


def _short(plain: Plain) -> Plain:
    """Return the scenario in the short forms that people write."""
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
