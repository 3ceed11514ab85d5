"""Single changes that a user makes by hand in a replayed fleet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from netdfl.core.errors import InputError
from netdfl.core.fates import FateReason
from netdfl.core.types import Edge, NodeId
from netdfl.links.schedule.events import CompiledEvent
from netdfl.record.status import ENDED, Phase
from netdfl.replaying.happenings import ASIDE, EndedMessage
from netdfl.replaying.playing import Playback
from netdfl.replaying.until import check_node
from netdfl.transport.simulated.fabric import FabricFlight

BY_HAND = FateReason("by_hand")
"""The recorded reason for the loss of a message that a user dropped by hand."""


@dataclass(frozen=True)
class FleetChange:
    """A change that a user can make to a replayed fleet, described by `words`.

    `check` raises InputError if the change is impossible at the present moment. `make` carries the change out; it is
    called within the simulation's event loop.
    """

    words: str
    check: Callable[[Playback], object]
    make: Callable[[Playback], None]

    def __str__(self) -> str:
        return self.words


def change_message(action: Literal["drop", "deliver"], edge: Edge, number: int | None = None) -> FleetChange:
    """Return the change that drops a message in flight, or delivers it at once.

    The message is number `number` on `edge`, counted from 1 in order of sending; with None, it is the one with the
    lowest number of those in flight there.
    """
    where = f"{edge[0]}->{edge[1]}"

    def find(playing: Playback) -> FabricFlight:
        flights = playing.world.fabric.flights()
        numbers = playing.happenings.numbers(edge, flights)
        there = {
            numbers[sending.id]: flight
            for flight in flights
            if flight.edge.edge == edge and (sending := flight.content[1]).id.kind not in ASIDE
        }
        wanted = min(there, default=None) if number is None else number
        if wanted is None or wanted not in there:
            for id, ended in playing.happenings.ended[edge].items():
                if numbers[id] == number:
                    raise InputError(f"message #{number} on {where} {_became(ended)}")
            which = "no message" if number is None else f"no message #{number}"
            under_way = ", ".join(f"#{each}" for each in sorted(there)) or "none"
            raise InputError(f"there is {which} under way on {where}; under way there: {under_way}")
        return there[wanted]

    def make(playing: Playback) -> None:
        if action == "drop":
            playing.world.fabric.lose(find(playing), BY_HAND)
        else:
            playing.world.fabric.hasten(find(playing))

    return FleetChange(f"{action} {where}" + ("" if number is None else f" #{number}"), find, make)


def _became(ended: EndedMessage) -> str:
    lost = "; `netdfl blame RUN --messages` tells what each lost message cost" if ended.lost else ""
    return f"is no longer under way: it {ended.words}{lost}"


def change_node(action: Literal["crash", "pause", "resume"], node: NodeId) -> FleetChange:
    """Return the change that crashes, pauses or resumes `node`, which must not have crashed or finished already."""

    def check(playing: Playback) -> None:
        phase = _phase(playing, node)
        if phase in ENDED:
            raise InputError(f"node {node} has {phase}")

    def make(playing: Playback) -> None:
        how = {"state": "kept"} if action == "crash" else {}
        event = CompiledEvent(action, -1, at_ns=playing.now_ns, nodes=(node,), parameters=how, entry=BY_HAND)
        playing.world.nodes[node].host.happen(event)

    return FleetChange(f"{action} {node}", check, make)


def restart_now(node: NodeId, state: Literal["kept", "lost"] = "lost") -> FleetChange:
    """Return the change that restarts a crashed node, with its state after its last finished round, or without it."""

    def check(playing: Playback) -> None:
        if _phase(playing, node) is not Phase.CRASHED:
            raise InputError(f"node {node} has not crashed")

    def make(playing: Playback) -> None:
        playing.supervisor.restarts.died(node, None)
        playing.supervisor.came_back(node, state == "kept")

    return FleetChange(f"restart {node} {state}", check, make)


def _phase(playing: Playback, node: NodeId) -> Phase:
    check_node(playing, node)
    return playing.supervisor.fleet.status.nodes[node].phase
