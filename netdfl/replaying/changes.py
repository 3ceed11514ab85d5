"""One thing changed by hand in a fleet that is played."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from netdfl.core.errors import InputError
from netdfl.core.types import Edge, NodeId
from netdfl.links.schedule.events import CompiledEvent
from netdfl.record.status import ENDED, Phase
from netdfl.replaying.checking import key_of
from netdfl.replaying.happenings import ASIDE
from netdfl.replaying.playing import Playing
from netdfl.replaying.until import check_node
from netdfl.transport.under_way import Flight

BY_HAND = "by_hand"
"""The reason of a loss that somebody wanted."""


class Change(Protocol):
    """Something that can be done to a fleet now."""

    def check(self, playing: Playing) -> None:
        """Raise InputError where it can't be done now."""

    def make(self, playing: Playing) -> None:
        """Do it, on the fleet's loop."""


@dataclass(frozen=True)
class ChangeMessage:
    """A message under way is lost, or arrives now: the one of that number on its edge, or the first there."""

    action: Literal["drop", "deliver"]
    edge: Edge
    number: int | None = None

    def check(self, playing: Playing) -> None:
        """See `Change`."""
        self._flight(playing)

    def make(self, playing: Playing) -> None:
        """See `Change`."""
        if self.action == "drop":
            playing.world.fabric.lose(self._flight(playing), BY_HAND)
        else:
            playing.world.fabric.hasten(self._flight(playing))

    def _flight(self, playing: Playing) -> Flight:
        flights = list(playing.world.fabric.under_way.flights())
        numbers = playing.happenings.numbers(self.edge, flights)
        there = {
            numbers[key_of(flight.message)]: flight
            for flight in flights
            if (flight.message.src, flight.message.dst) == self.edge and flight.message.kind not in ASIDE
        }
        number = min(there, default=None) if self.number is None else self.number
        if number is None or number not in there:
            which = "no message" if self.number is None else f"no message #{self.number}"
            under_way = ", ".join(f"#{each}" for each in sorted(there)) or "none"
            raise InputError(f"there is {which} under way on {self._where}; under way there: {under_way}")
        return there[number]

    @property
    def _where(self) -> str:
        return f"{self.edge[0]}->{self.edge[1]}"

    def __str__(self) -> str:
        return f"{self.action} {self._where}" + ("" if self.number is None else f" #{self.number}")


@dataclass(frozen=True)
class ChangeNode:
    """A node that is up crashes, stands still, or goes on."""

    action: Literal["crash", "pause", "resume"]
    node: NodeId

    def check(self, playing: Playing) -> None:
        """See `Change`."""
        check_node(playing, self.node)
        phase = playing.supervisor.fleet.status.nodes[self.node].phase
        if phase in ENDED:
            raise InputError(f"node {self.node} has {phase}")

    def make(self, playing: Playing) -> None:
        """See `Change`."""
        how = {"state": "kept"} if self.action == "crash" else {}
        now = playing.now_ns
        event = CompiledEvent(self.action, -1, at_ns=now, nodes=(self.node,), parameters=how, entry=BY_HAND)
        playing.world.residents[self.node].host.happen(event)

    def __str__(self) -> str:
        return f"{self.action} {self.node}"


@dataclass(frozen=True)
class RestartNow:
    """Let a node that crashed live again."""

    node: NodeId
    state: Literal["kept", "lost"] = "lost"

    def check(self, playing: Playing) -> None:
        """See `Change`."""
        check_node(playing, self.node)
        if playing.supervisor.fleet.status.nodes[self.node].phase is not Phase.CRASHED:
            raise InputError(f"node {self.node} has not crashed")

    def make(self, playing: Playing) -> None:
        """See `Change`."""
        playing.supervisor.restarts.died(self.node, None)
        playing.supervisor.came_back(self.node, self.state == "kept")

    def __str__(self) -> str:
        return f"restart {self.node} {self.state}"
