"""What the links will do to a message that is under way."""

from __future__ import annotations

import copy
from dataclasses import replace

from netdfl.links.path import Fused
from netdfl.links.rules.base import Departure, Dropped, LinkRule
from netdfl.replaying.happenings import seconds
from netdfl.transport.fabric import Flight


def way_of(flight: Flight) -> tuple[int | None, str]:
    """When a message arrives (None: never, or that is not known), and its way in words.

    What is left of its way is tried on copies of its stages. Luck there goes by the message's name, so it is what will
    happen, unless something else comes into a queue before it, or the scenario changes the link meanwhile.
    """
    if flight.at_ns is None:
        full = flight.unit is None
        return None, "held: its receiver's mailbox is full" if full else "held by a link that is down"
    if flight.unit is None or not flight.stages:
        return flight.at_ns, f"arrives at {seconds(flight.at_ns)}"
    at_ns, unit = flight.at_ns, replace(flight.unit, content=None, pending=None)
    for stage in flight.stages:
        outcomes = copy.deepcopy(stage).enter(unit, at_ns)
        last = outcomes[0] if outcomes else None
        if isinstance(last, Dropped):
            return None, f"will be lost at {seconds(at_ns)}: {last.reason}"
        if not isinstance(last, Departure):
            return None, f"will be held from {seconds(at_ns)} by {_name(stage)}"
        at_ns, unit = last.at_ns, last.unit
    return at_ns, f"arrives at {seconds(at_ns)}, through {', '.join(map(_name, flight.stages))}"


def _name(stage: LinkRule) -> str:
    if isinstance(stage, Fused):
        return " and ".join(map(_name, stage.stages))
    return type(stage).__name__.lower()
