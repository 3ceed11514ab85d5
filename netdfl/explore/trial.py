"""A trial: one variant of a scenario, as the events that are added to its own, and the luck of its links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from netdfl.core.types import Json
from netdfl.links.schedule.compile import ScheduleError
from netdfl.scenario.build import compile_schedule
from netdfl.scenario.model.schema import Scenario

Event: TypeAlias = Json
"""An entry of `events`, as a scenario writes it."""


@dataclass(frozen=True)
class Trial:
    """The trial `number`. It was drawn `fresh`, or with faults close together (`narrow`), or changes trial `parent`."""

    number: int
    events: tuple[Event, ...] = ()
    luck: int | None = None
    parent: int | None = None
    narrow: bool = False

    @property
    def fresh(self) -> bool:
        """Whether it was drawn by the stated fault model and nothing else, so that rates can be told from it."""
        return self.parent is None and not self.narrow


def variant(scenario: Scenario, events: Sequence[Event], luck: int | None) -> Scenario:
    """`scenario` with these events beside its own, and this luck."""
    world = scenario.world.model_copy(update={"luck": luck}) if luck is not None else scenario.world
    return scenario.model_copy(update={"events": [*scenario.events, *map(dict, events)], "world": world})


def possible(scenario: Scenario, events: Sequence[Event]) -> tuple[Event, ...]:
    """Those of `events` that fit the scenario's own and each other: of two that do not, the later one is left out."""
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
