"""The choice of the next trials (simulated runs with drawn faults) in a search for failures.

A quarter of the trials is drawn independently by the scenario's fault model, so that rates can be estimated. A quarter
has faults close together: of few kinds, at a few nodes that exchange messages, in a few rounds. The others are
mutations of a trial with rare features; the rarer, and the less often it was mutated, the likelier it is chosen.
Trials come in batches. A batch depends on the seed and on earlier batches in the order of their numbers, so the
search is the same on any number of processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from netdfl.core.rng import Streams
from netdfl.explore.faults import Baseline, draw_faults
from netdfl.explore.mutations import aligned, draw_schedule, is_priority, later, moved, renamed, symmetries
from netdfl.explore.trial import Event, Trial, possible
from netdfl.scenario.model.explore import Rates
from netdfl.scenario.model.schema import Scenario

FRESH, NARROW = 0.25, 0.25
"""The share of trials drawn independently by the fault model, and the share with faults close together."""
SCHEDULES = 0.5
"""The share of independently drawn trials with a priority schedule (delays that put nodes in a drawn order)."""
MOST_LUCK = 1 << 31
MOST_SYMMETRIC = 64
"""Largest number of nodes for which symmetries of the message graph are sought."""


@dataclass
class _CorpusEntry:
    """A trial that reached new features, kept for mutation, with the number of its mutations (`changes`) so far."""

    trial: Trial
    features: frozenset[int]
    changes: int = 0


@dataclass
class Search:
    """The search for failing runs of one scenario: it draws trials, and mutates those that reached new features.

    Faults are drawn for the nodes, rounds and messages of `course`, a run without faults.
    """

    scenario: Scenario
    course: Baseline
    rates: Rates
    seed: int
    guided: bool = True
    _reached: Counter[int] = field(default_factory=Counter)
    _corpus: list[_CorpusEntry] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Prepare the random streams and the symmetries of the message graph."""
        self._streams = Streams(self.seed)
        self._symmetries = symmetries(self.course) if self.course.nodes <= MOST_SYMMETRIC else []

    def draw(self, number: int) -> Trial:
        """Draw trial `number`: independently, with faults close together, or by mutation of an earlier trial."""
        rng = Random(self._streams.integer("explore", number))
        how = rng.random() if self.guided else 0.0
        if how < FRESH:
            return self._fresh(number, rng)
        if how < FRESH + NARROW or not self._corpus:
            return self._narrow(number, rng)
        return self._changed(number, rng)

    def learn(self, trial: Trial, features: frozenset[int]) -> None:
        """Count the features of the run of `trial`; if some are new, store the trial, so that it may be mutated."""
        new = features - self._reached.keys()
        self._reached.update(features)
        if new and self.guided:
            self._corpus.append(_CorpusEntry(trial, features))

    @property
    def num_reached(self) -> int:
        """The number of different features (hashed situations) that runs have reached so far."""
        return len(self._reached)

    def _fresh(self, number: int, rng: Random) -> Trial:
        spec = self.scenario.explore
        luck = rng.randrange(MOST_LUCK) if spec.luck else None
        events = draw_faults(self.course, self.rates, spec.faults, rng)
        if spec.depth and rng.random() < SCHEDULES:
            events += draw_schedule(self.course, spec.depth, self._most_delay_ns, rng)
        return Trial(number, possible(self.scenario, events), luck)

    def _narrow(self, number: int, rng: Random) -> Trial:
        """Draw a trial with faults of few kinds, at a few nodes that exchange messages, within a few rounds."""
        spec, kinds = self.scenario.explore, list(self.rates)
        some = set(rng.choices(kinds, [self.rates[kind] for kind in kinds], k=rng.randint(1, 3))) if kinds else set()
        few = {kind: self.rates[kind] for kind in kinds if kind in some}
        events = draw_faults(self.course.narrowed(rng), few, spec.faults, rng, least=min(2, spec.faults))
        luck = rng.randrange(MOST_LUCK) if spec.luck else None
        return Trial(number, possible(self.scenario, events), luck, narrow=True)

    @property
    def _most_delay_ns(self) -> int:
        delay = self.scenario.explore.delay
        return delay if isinstance(delay, int) else self.course.round_ns

    def _changed(self, number: int, rng: Random) -> Trial:
        place = rng.choices(range(len(self._corpus)), [self._energy(each) for each in self._corpus])[0]
        parent = self._corpus[place]
        parent.changes += 1
        events, luck = list(parent.trial.events), parent.trial.luck
        for _ in range(rng.choice((1, 1, 2, 3))):
            events = self._change(events, rng)
        if luck is not None and rng.random() < 0.1:
            luck = rng.randrange(MOST_LUCK)
        return Trial(number, possible(self.scenario, events), luck, parent.trial.number)

    def _energy(self, kept: _CorpusEntry) -> float:
        """Return the weight with which a stored trial is chosen for mutation.

        The weight is the rarity of the trial's rarest feature, divided by one more than the number of its mutations.
        """
        rarest = min((self._reached[each] for each in kept.features), default=1)
        return 1 / (rarest * (1 + kept.changes))

    def _change(self, events: list[Event], rng: Random) -> list[Event]:
        """Return the events of a trial after one mutation.

        A fault is added, removed, moved or replaced; faults of another trial are added; all events are moved in time;
        or all nodes are renamed.
        """
        how = rng.random()
        faults = [event for event in events if not is_priority(event)]
        which = faults if faults and rng.random() < 0.7 else events
        place = events.index(rng.choice(which)) if which else None
        few = len(faults) < self.scenario.explore.faults
        if place is None or (how < 0.25 and few):
            return [*events, *self._drawn(faults, rng)]
        if how < 0.35:
            return [*events[:place], *events[place + 1 :]]
        if how < 0.6:
            return [*events[:place], moved(events[place], self.course, rng), *events[place + 1 :]]
        if how < 0.7:
            return [renamed(event, rng.choice(self._symmetries)) for event in events] if self._symmetries else events
        if how < 0.8:
            by = rng.choice((-3, -2, -1, 1, 2, 3))
            return [later(event, by, self.course) for event in events]
        if how < 0.9 or not few:
            return [*events[:place], *self._drawn(faults, rng), *events[place + 1 :]]
        other = rng.choice(self._corpus).trial.events
        return [*events, *rng.sample(other, min(len(other), self.scenario.explore.faults - len(faults)))]

    def _drawn(self, beside: Sequence[Event], rng: Random) -> list[Event]:
        """Draw a new fault; in half of the cases, move it to the time or nodes of one of the faults in `beside`."""
        drawn = draw_faults(self.course, self.rates, 1, rng, least=1)
        if beside and rng.random() < 0.5:
            return [aligned(event, rng.choice(beside), rng) for event in drawn]
        return drawn
