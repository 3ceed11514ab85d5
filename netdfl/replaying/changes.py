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
from netdfl.transport.fabric import Flight

BY_HAND = "by_hand"
"""The reason of a loss that somebody wanted."""


class Change(Protocol):
    """Something that can be done to a fleet now."""

    def check(self, playing: Playing) -> None:
        """Raise InputError where it can't be done now."""
        ...

    def make(self, playing: Playing) -> None:
        """Do it, on the fleet's loop."""
        ...


@dataclass(frozen=True)
class _OfMessage:
    """A message under way: the one of that number on its edge, or the first there."""

    edge: Edge
    number: int | None = None

    def check(self, playing: Playing) -> None:
        """See `Change`."""
        self._flight(playing)

    def _flight(self, playing: Playing) -> Flight:
        flights = list(playing.world.fabric.flights())
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

    @property
    def _which(self) -> str:
        return self._where if self.number is None else f"{self._where} #{self.number}"


class DropNow(_OfMessage):
    """Lose it."""

    def make(self, playing: Playing) -> None:
        """See `Change`."""
        playing.world.fabric.lose(self._flight(playing), BY_HAND)

    def __str__(self) -> str:
        return f"drop {self._which}"


class DeliverNow(_OfMessage):
    """Let it arrive."""

    def make(self, playing: Playing) -> None:
        """See `Change`."""
        playing.world.fabric.hasten(self._flight(playing))

    def __str__(self) -> str:
        return f"deliver {self._which}"


@dataclass(frozen=True)
class _OfNode:
    """Something that happens to a node that is up."""

    node: NodeId

    def check(self, playing: Playing) -> None:
        """See `Change`."""
        check_node(playing, self.node)
        phase = playing.supervisor.fleet.status.nodes[self.node].phase
        if phase in ENDED:
            raise InputError(f"node {self.node} has {phase}")

    def _happen(self, playing: Playing, action: str, **parameters: str) -> None:
        now = playing.now_ns
        event = CompiledEvent(action, -1, at_ns=now, nodes=(self.node,), parameters=parameters, entry=BY_HAND)
        playing.world.residents[self.node].host.happen(event)


class CrashNow(_OfNode):
    """Let it crash."""

    def make(self, playing: Playing) -> None:
        """See `Change`."""
        self._happen(playing, "crash", state="kept")

    def __str__(self) -> str:
        return f"crash {self.node}"


class PauseNow(_OfNode):
    """Let it stand still."""

    def make(self, playing: Playing) -> None:
        """See `Change`."""
        self._happen(playing, "pause")

    def __str__(self) -> str:
        return f"pause {self.node}"


class ResumeNow(_OfNode):
    """Let it go on."""

    def make(self, playing: Playing) -> None:
        """See `Change`."""
        self._happen(playing, "resume")

    def __str__(self) -> str:
        return f"resume {self.node}"


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
