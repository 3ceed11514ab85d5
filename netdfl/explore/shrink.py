"""Shrinking of a failing scenario to the smallest that fails by the same cause, by delta debugging over all its parts.

First the randomness of links is written out: each lost message becomes an event. Then events, rounds, nodes, links,
times and keys are removed or reduced as long as the cause stays the same, again and again until nothing more can be.
(Zeller and Hildebrandt 2002.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from netdfl.core.errors import InputError, NetdflError
from netdfl.core.fates import CORRUPT, LOSS, Fate
from netdfl.explore import edits
from netdfl.explore.cause import VERDICT, FailureCause, Predicate, cause_of
from netdfl.explore.edits import Plain
from netdfl.explore.execute import Executor, ExploredRun
from netdfl.explore.faults import Baseline, allowed, draw_faults, name_message
from netdfl.explore.mutations import aligned, is_priority
from netdfl.scenario.build import build_network
from netdfl.scenario.load import load
from netdfl.scenario.loading.resolved import to_plain
from netdfl.scenario.model.schema import Scenario

T = TypeVar("T")
MOST_RUNS = 600
MOST_SINGLE = 300
"""The most delays of single messages that are tried in place of delays of all messages of some nodes."""
EXCHANGES = 120
"""The most faults that are drawn and tried, each as a replacement of two others."""
_BY_LUCK = (Fate.dropped(LOSS).text, Fate.dropped(CORRUPT).text)
_RANDOM = ("loss", "duplicate", "corrupt", "reorder")


@dataclass
class ShrunkScenario:
    """The smallest scenario found that fails by the same cause as the original.

    Attributes:
        scenario: the scenario.
        plain: the same scenario as nested plain values.
        run: its run.
        cause: the cause by which the run fails.
        runs: the number of runs that shrinking took.
    """

    scenario: Scenario
    plain: Plain
    run: ExploredRun
    cause: FailureCause
    runs: int


class RunBudgetSpent(Exception):
    """The exception that ends shrinking when all its permitted runs are spent."""


@dataclass
class Shrinker:
    """The search for the smallest variant of a scenario that fails by the same cause, in at most `most_runs` runs."""

    predicates: Sequence[Predicate]
    executor: Executor
    most_runs: int = MOST_RUNS
    _runs: int = 0
    _seen: dict[str, bool] = field(default_factory=dict)

    def shrink(self, scenario: Scenario, key: str) -> ShrunkScenario:
        """Return the smallest variant of `scenario` whose run fails by the cause `key`.

        Raises InputError if the scenario itself does not fail by it.
        """
        self._key, self._scenario = key, scenario
        self._verdict = VERDICT in scenario.explore.find
        plain = short_plain(scenario)
        if not self._shows(plain):
            raise InputError(f"{scenario.name} does not show {key}: it, or its parts, have changed since")
        with suppress(RunBudgetSpent):
            self._smaller(self._written_out(plain))
        best = self._best
        smallest = _fewer_keys(best, _means_the_same(self._scenario, best))
        return ShrunkScenario(beside(self._scenario, smallest), smallest, self._run, self._cause, self._runs)

    # trying

    def _shows(self, plain: Plain) -> bool:
        """Run a smaller scenario; return whether it still fails by the same cause, and store it if so."""
        text = repr(plain)
        if text in self._seen:
            return self._seen[text]
        self._seen[text] = False
        try:
            scenario = beside(self._scenario, plain)
        except NetdflError:
            return False
        if self._runs >= self.most_runs:
            raise RunBudgetSpent
        self._runs += 1
        try:
            run = self.executor.run(scenario)
        except InputError:
            return False
        cause = cause_of(run, self.predicates, verdict=self._verdict)
        if cause is None or cause.key != self._key:
            return False
        self._best, self._run, self._cause = plain, run, cause
        self._seen[text] = True
        return True

    def _first(self, candidates: Iterator[Plain], plain: Plain) -> Plain:
        """Return the first of the `candidates`, smaller scenarios, that still fails by the same cause, else `plain`."""
        return next((candidate for candidate in candidates if self._shows(candidate)), plain)

    def _greedily(self, candidates: Callable[[Plain], Iterator[Plain]], plain: Plain) -> Plain:
        """Replace `plain` repeatedly by the first of its smaller `candidates` that still fails by the same cause."""
        while (found := self._first(candidates(plain), plain)) is not plain:
            plain = found
        return plain

    # passes

    def _smaller(self, plain: Plain) -> Plain:
        before = None
        while before != plain:
            before = plain
            plain = self._fewer_events(plain)
            plain = self._fewer_rounds(plain)
            plain = self._single_delays(plain)
            plain = self._greedily(edits.fewer_events, plain)
            plain = self._one_for_two(plain)
            plain = self._greedily(edits.earlier, plain)
            plain = self._greedily(edits.fewer_nodes, plain)
            plain = _fewer_keys(plain, self._shows, edits.STUDIED)
            plain = self._smaller_graph(plain)
            plain = self._greedily(edits.shorter, plain)
        return plain

    def _written_out(self, plain: Plain) -> Plain:
        """Return the scenario with a drop event for each lost message in place of random link rules, if it still fails.

        If it does not, return `plain`, without the seed for links (`world.luck`) if the failure does not need that.
        """
        own = edits.without_key(plain, ("world", "luck"))
        if own is not None and self._shows(own):
            plain = own
        messages = self._run.rows.messages
        sure = deepcopy(plain)
        sure["world"].pop("luck", None)
        for rules in sure.get("links", {}).values():
            for key in _RANDOM:
                rules.pop(key, None)
        named = [name_message(m, messages, "drop") for m in messages if m.fate in _BY_LUCK]
        sure = edits.with_events(sure, [*sure.get("events", []), *named])
        return sure if self._shows(sure) else plain

    def _fewer_events(self, plain: Plain) -> Plain:
        events = minimize(plain.get("events", []), lambda kept: self._shows(edits.with_events(plain, kept)))
        return edits.with_events(plain, events) if len(events) < len(plain.get("events", [])) else plain

    def _single_delays(self, plain: Plain) -> Plain:
        """Replace events that delay all messages of a node by delays of single messages, if these are fewer events."""
        wide = [event for event in plain.get("events", []) if is_priority(event)]
        if not wide or not self._shows(plain):  # the run that is looked at is that of `plain`
            return plain
        others = [event for event in plain["events"] if not is_priority(event)]
        single = [each for event in wide for each in edits.single_delays(event, self._run.rows.messages)]
        written = edits.with_events(plain, [*others, *single])
        if len(single) > MOST_SINGLE or not self._shows(written):
            return plain
        fewer = self._greedily(edits.fewer_events, self._fewer_events(written))
        return fewer if len(fewer["events"]) < len(plain["events"]) else plain

    def _one_for_two(self, plain: Plain) -> Plain:
        """Replace two faults by one drawn near them, if the scenario then still fails by the same cause."""
        if len(plain["events"]) < 2 or not self._shows(plain):  # the run that is looked at is that of `plain`
            return plain
        scenario, rng = beside(self._scenario, plain), Random(len(plain["events"]))
        course = Baseline.of(self._run)
        rates, _ = allowed(scenario, course)
        for _ in range(EXCHANGES if rates else 0):
            gone = rng.sample(plain["events"], 2)
            rest = [event for event in plain["events"] if event not in gone]
            (drawn,) = draw_faults(course.near(gone, rng), rates, 1, rng, least=1)
            exchanged = edits.with_events(plain, [*rest, aligned(drawn, rng.choice(gone), rng)])
            if self._shows(exchanged):
                return exchanged
        return plain

    def _fewer_rounds(self, plain: Plain) -> Plain:
        last = max((event.get("at_round", 0) + event.get("for_rounds", 1) for event in plain["events"]), default=1)
        rounds = plain["rounds"]
        few = dict.fromkeys([*range(1, 4), *range(max(1, last - 1), last + 4), rounds // 4, rounds // 2, rounds - 1])
        return self._first((edits.with_rounds(plain, n) for n in sorted(few) if 0 < n < rounds), plain)

    def _smaller_graph(self, plain: Plain) -> Plain:
        """Remove links that the failure does not need, if the graph is fixed and small, and the fleet has no server."""
        scenario = beside(self._scenario, plain)
        network = build_network(scenario)
        if network.varies or scenario.has_server or scenario.num_nodes > 12:
            return plain
        edges = [edge for edge in network.graph(0).edges if edge[0] != edge[1]]
        both = all(edge[::-1] in edges for edge in edges)
        links = [edge for edge in edges if not both or edge[0] < edge[1]]

        def graph(kept: Sequence[tuple[int, int]]) -> Plain:
            return edits.with_edges(plain, [*kept, *(edge[::-1] for edge in kept if both)])

        fewer = minimize(links, lambda kept: bool(kept) and self._shows(graph(kept)))
        return graph(fewer) if len(fewer) < len(links) else plain


def short_plain(scenario: Scenario) -> Plain:
    """Return a scenario as plain values, without keys whose absence has the same meaning."""
    plain = to_plain(scenario)
    return _fewer_keys(plain, _means_the_same(scenario, plain))


def _means_the_same(scenario: Scenario, plain: Plain) -> Callable[[Plain], bool]:
    means = to_plain(beside(scenario, plain))

    def same(candidate: Plain) -> bool:
        try:
            return to_plain(beside(scenario, candidate)) == means
        except NetdflError:
            return False

    return same


def beside(scenario: Scenario, plain: Plain, sets: Sequence[str] = ()) -> Scenario:
    """Load `plain`, with the overrides `sets`, as if from the file of `scenario`, so that files next to it are found.

    Raises InputError.
    """
    found = load(plain, sets, directory=scenario.folder)
    found._file = scenario.file
    return found


def _fewer_keys(plain: Plain, holds: Callable[[Plain], bool], but: Sequence[str] = ()) -> Plain:
    """Remove each key of a scenario, except those in `but`, without which `holds` is still true of the scenario."""
    for path in list(edits.keys_of(plain, but)):
        without = edits.without_key(plain, path)
        if without is not None and holds(without):
            plain = without
    return plain


def minimize(items: Sequence[T], holds: Callable[[Sequence[T]], bool]) -> list[T]:
    """Return a minimal subset of `items` for which `holds` is still true, found by ddmin."""
    left, parts = list(items), 2
    if left and holds([]):
        return []
    while len(left) > 1:
        size = -(-len(left) // parts)
        chunks = [left[start : start + size] for start in range(0, len(left), size)]
        rest = [[item for other in chunks if other is not chunk for item in other] for chunk in chunks]
        smaller = next((each for each in [*chunks, *rest] if len(each) < len(left) and holds(each)), None)
        if smaller is not None:
            parts = 2 if any(smaller is chunk for chunk in chunks) else max(2, parts - 1)
            left = list(smaller)
        elif parts < len(left):
            parts = min(len(left), 2 * parts)
        else:
            break
    return left
