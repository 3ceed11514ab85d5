"""The search: which trial comes next.

A quarter is drawn by the fault model that the scenario states, each by itself, so that rates can be told. A quarter has
its faults close together: of few kinds, of a few nodes that exchange messages, in a few rounds. The others change a
trial that reached what few did: the fewer, and the less often it was changed, the likelier.

Trials come in batches. A batch depends on the seed and on the batches before it, in the order of their numbers, so the
search is the same on however many processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from netdfl.core.rng import Streams
from netdfl.explore.faults import Course, draw_faults
from netdfl.explore.mutations import aligned, draw_schedule, is_priority, later, moved, renamed, symmetries
from netdfl.explore.trial import Event, Trial, possible
from netdfl.scenario.model.explore import Rates
from netdfl.scenario.model.schema import Scenario

FRESH, NARROW = 0.25, 0.25
"""The shares of trials that are drawn by themselves, and whose faults are drawn close together."""
SCHEDULES = 0.5
"""The share of trials by themselves that have a schedule of priorities."""
MOST_LUCK = 1 << 31
MOST_SYMMETRIC = 64
"""In a larger fleet no symmetries are looked for."""


@dataclass
class _Kept:
    """A trial that reached something new, what it reached, and how often it was changed since."""

    trial: Trial
    features: frozenset[int]
    changes: int = 0


@dataclass
class Search:
    """Draws the trials of one exploration of `scenario`, whose run without faults went as `course` says."""

    scenario: Scenario
    course: Course
    rates: Rates
    seed: int
    guided: bool = True
    _reached: Counter[int] = field(default_factory=Counter)
    _corpus: list[_Kept] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Prepare its streams."""
        self._streams = Streams(self.seed)
        self._symmetries = symmetries(self.course) if self.course.nodes <= MOST_SYMMETRIC else []

    def draw(self, number: int) -> Trial:
        """The trial `number`, by what was learnt so far."""
        rng = Random(self._streams.integer("explore", number))
        how = rng.random() if self.guided else 0.0
        if how < FRESH:
            return self._fresh(number, rng)
        if how < FRESH + NARROW or not self._corpus:
            return self._narrow(number, rng)
        return self._changed(number, rng)

    def learn(self, trial: Trial, features: frozenset[int]) -> None:
        """What the run of `trial` reached; it is kept where that was new."""
        new = features - self._reached.keys()
        self._reached.update(features)
        if new and self.guided:
            self._corpus.append(_Kept(trial, features))

    @property
    def num_reached(self) -> int:
        """How many features were reached."""
        return len(self._reached)

    def _fresh(self, number: int, rng: Random) -> Trial:
        spec = self.scenario.explore
        luck = rng.randrange(MOST_LUCK) if spec.luck else None
        events = draw_faults(self.course, self.rates, spec.faults, rng)
        if spec.depth and rng.random() < SCHEDULES:
            events += draw_schedule(self.course, spec.depth, self._most_delay_ns, rng)
        return Trial(number, possible(self.scenario, events), luck)

    def _narrow(self, number: int, rng: Random) -> Trial:
        """As many faults as there may be, of few kinds, of a few nodes that talk to each other, in a few rounds."""
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

    def _energy(self, kept: _Kept) -> float:
        """How seldom the rarest thing is reached that this trial reached, for each time that it was changed."""
        rarest = min((self._reached[each] for each in kept.features), default=1)
        return 1 / (rarest * (1 + kept.changes))

    def _change(self, events: list[Event], rng: Random) -> list[Event]:
        """A fault more, a fault less, one moved, one for another, or some of another trial's; or all moved together."""
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
        """A new fault, in half of the cases in the round, or to the node, of one that is there."""
        drawn = draw_faults(self.course, self.rates, 1, rng, least=1)
        if beside and rng.random() < 0.5:
            return [aligned(event, rng.choice(beside), rng) for event in drawn]
        return drawn
