"""Sends units through the links of a fleet, under a schedule, and tells what became of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from netdfl.links.channel import Links
from netdfl.links.event_driver import Drive
from netdfl.links.rules.base import Transit
from netdfl.links.schedule.events import CompiledEvent


class UnitEnd(NamedTuple):
    """The end of a unit: it arrived at `at_ns`, or was dropped then for a `reason`."""

    at_ns: int
    unit: Transit
    reason: str | None = None


def drive(
    links: Links, events: Sequence[CompiledEvent], sent: Iterable[tuple[int, Transit]], seed: int = 0
) -> list[UnitEnd]:
    """Send each unit at its time through `links` under the clocked `events`; the fates, in order of time.

    At one moment, scheduled events come before units. Units that a link holds for ever have no fate.
    """
    fates: list[UnitEnd] = []
    run = Drive(
        seed,
        lambda unit, at: fates.append(UnitEnd(at, unit)),
        lambda unit, why, at: fates.append(UnitEnd(at, unit, why)),
    )
    for at_ns, unit in sent:
        run.submit(links.path(unit.src, unit.dst), unit, at_ns)
    for event in events:
        if event.at_ns is not None:
            run.run(event.at_ns - 1)
            for step in links.apply(event, event.at_ns):
                run.take(*step, event.at_ns)
    run.run(1 << 62)
    return fates
