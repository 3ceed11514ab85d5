"""The search: which trial comes next. Half are drawn afresh; the others change one that reached what few did.

Trials come in batches. A batch depends on the seed and on the batches before it, in the order of their numbers, so the
search is the same on however many processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from netdfl.core.rng import Streams
from netdfl.core.units import format_time, parse_time_ns
from netdfl.explore.faults import Course, draw_faults, rounded
from netdfl.explore.priorities import draw_schedule, is_priority
from netdfl.explore.trial import Event, Trial, possible
from netdfl.scenario.model.explore import Rates
from netdfl.scenario.model.schema import Scenario

FRESH = 0.4
"""The share of trials that are drawn afresh, once there is something to change."""
SCHEDULES = 0.5
"""The share of fresh trials with a schedule of priorities."""
NODES = ("crash", "pause", "slow_down")
MOST_LUCK = 1 << 31


@dataclass
class Search:
    """Draws the trials of one exploration of `scenario`, whose run without faults went as `course` says."""

    scenario: Scenario
    course: Course
    rates: Rates
    seed: int
    guided: bool = True
    _reached: Counter[int] = field(default_factory=Counter)
    _corpus: list[tuple[Trial, frozenset[int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Prepare its streams."""
        self._streams = Streams(self.seed)

    def draw(self, number: int) -> Trial:
        """The trial `number`, by what was learnt so far."""
        rng = Random(self._streams.integer("explore", number))
        if not self.guided or not self._corpus or rng.random() < FRESH:
            return self._fresh(number, rng)
        return self._changed(number, rng)

    def learn(self, trial: Trial, features: frozenset[int]) -> None:
        """What the run of `trial` reached; it is kept where that was new."""
        new = features - self._reached.keys()
        self._reached.update(features)
        if new and self.guided:
            self._corpus.append((trial, features))

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

    @property
    def _most_delay_ns(self) -> int:
        delay = self.scenario.explore.delay
        return delay if isinstance(delay, int) else self.course.round_ns

    def _changed(self, number: int, rng: Random) -> Trial:
        parent, _ = rng.choices(self._corpus, [self._rarity(features) for _, features in self._corpus])[0]
        events, luck = list(parent.events), parent.luck
        for _ in range(rng.choice((1, 1, 2, 3))):
            events = self._change(events, rng)
        if luck is not None and rng.random() < 0.1:
            luck = rng.randrange(MOST_LUCK)
        return Trial(number, possible(self.scenario, events), luck, parent.number)

    def _rarity(self, features: frozenset[int]) -> float:
        """How seldom the rarest thing is reached that this trial reached."""
        return 1 / min((self._reached[each] for each in features), default=1)

    def _change(self, events: list[Event], rng: Random) -> list[Event]:
        """A fault more, a fault less, one moved, one for another, or some of another trial's."""
        how = rng.random()
        place = rng.randrange(len(events)) if events else None
        faults = [event for event in events if not is_priority(event)]
        few = len(faults) < self.scenario.explore.faults
        if place is None or (how < 0.3 and few):
            return [*events, *self._drawn(faults, rng)]
        if how < 0.4:
            return [*events[:place], *events[place + 1 :]]
        if how < 0.8:
            return [*events[:place], self._moved(events[place], rng), *events[place + 1 :]]
        if how < 0.9 or not few:
            return [*events[:place], *self._drawn(faults, rng), *events[place + 1 :]]
        other = rng.choice(self._corpus)[0].events
        return [*events, *rng.sample(other, min(len(other), self.scenario.explore.faults - len(faults)))]

    def _drawn(self, beside: Sequence[Event], rng: Random) -> list[Event]:
        """A new fault, in half of the cases in the round, or to the node, of one that is there."""
        drawn = draw_faults(self.course, self.rates, 1, rng, least=1)
        if beside and rng.random() < 0.5:
            return [aligned(event, rng.choice(beside), rng) for event in drawn]
        return drawn

    def _moved(self, event: Event, rng: Random) -> Event:
        """The same a round earlier or later, or longer, or at a time close by."""
        changed = dict(event)
        keys = [key for key in ("at_round", "at", "for", "by", "restart_after") if key in event]
        key = rng.choice(keys) if keys else ""
        if key == "at_round":
            changed[key] = max(0, min(self.course.rounds - 1, event[key] + rng.choice((-2, -1, 1, 2))))
        elif key == "at":
            near = parse_time_ns(event[key]) + round(rng.gauss(0, 1) * self.course.round_ns)
            changed[key] = format_time(rounded(max(1, near)))
        elif key:
            changed[key] = format_time(rounded(parse_time_ns(event[key]) * rng.choice((0.25, 0.5, 0.8, 1.25, 2, 4))))
        return changed


def aligned(event: Event, other: Event, rng: Random) -> Event:
    """`event` at the time of `other`, or to the same nodes, or both, where these have a common form."""
    found = dict(event)
    when = next((key for key in ("at_round", "at") if key in other), "")
    if rng.random() < 0.7 and when in event:
        found[when] = other[when]
    nodes = next((other[key] for key in NODES if key in other), None)
    mine = next((key for key in NODES if key in event), None)
    if mine is not None and nodes is not None and rng.random() < 0.5:
        found[mine] = nodes
    return found


def count_faults(events: Sequence[Event]) -> int:
    """How many of `events` are faults."""
    return sum(not is_priority(event) for event in events)
