"""A trial of an exploration: a scenario with additional events (faults) and, maybe, another seed for its links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from netdfl.core.types import Json
from netdfl.links.schedule.compile import ScheduleError
from netdfl.scenario.build import compile_schedule
from netdfl.scenario.model.schema import Scenario

Event: TypeAlias = Json
"""An entry of a scenario's `events`, such as a crash or a lost message, as plain values."""


@dataclass(frozen=True)
class Trial:
    """One trial of an exploration: its number, the faults that it adds to the scenario, and how they were drawn.

    Attributes:
        number: the place of the trial in the search.
        events: the faults that it adds to the scenario.
        luck: the seed for the random loss and delay on its links; None: the scenario's own.
        parent: the number of the trial of which this one is a mutation; None: it was drawn.
        narrow: whether its faults were drawn close together.
    """

    number: int
    events: tuple[Event, ...] = ()
    luck: int | None = None
    parent: int | None = None
    narrow: bool = False

    @property
    def fresh(self) -> bool:
        """Whether the trial was drawn independently of all others, so that it counts for estimates of failure rates."""
        return self.parent is None and not self.narrow


def variant(scenario: Scenario, events: Sequence[Event], luck: int | None) -> Scenario:
    """Return `scenario` with additional events, and with the seed `luck` for its links' random loss and delay."""
    world = scenario.world.model_copy(update={"luck": luck}) if luck is not None else scenario.world
    return scenario.model_copy(update={"events": [*scenario.events, *map(dict, events)], "world": world})


def possible(scenario: Scenario, events: Sequence[Event]) -> tuple[Event, ...]:
    """Return the events that fit the scenario's own and each other; of two that conflict, drop the later one."""
    left, own = list(events), len(scenario.events)
    while left:
        try:
            compile_schedule(variant(scenario, left, None))
        except ScheduleError as error:
            wrong = {index - own for index, _ in error.problems if index >= own} or {len(left) - 1}
            left = [event for index, event in enumerate(left) if index not in wrong]
        else:
            break
    return tuple(left)
