"""What is under way in a fabric: looked at, and taken off its way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from netdfl.core.types import Message, NodeId
from netdfl.links.rules.base import LinkRule, Transit
from netdfl.transport.simulated.edge_queues import EdgeQueue, End, Parcel
from netdfl.transport.simulated.instants import Instants, is_void


class Flight(NamedTuple):
    """A message under way: when it was sent, and when it arrives, or leaves the stage that it is in.

    None: a link or a full mailbox holds it. Before it are the `stages`; `unit` stands for it in them.
    """

    message: Message
    sent_ns: int
    at_ns: int | None
    stages: Sequence[LinkRule]
    unit: Transit | None


@dataclass(frozen=True, slots=True)
class UnderWay:
    """What a fabric has of messages that have not ended: due at an instant, held by a stage, or held at an end."""

    ends: Mapping[NodeId, End]
    instants: Instants
    in_stages: dict[Transit, EdgeQueue]

    def messages(self) -> Iterator[tuple[Message, int]]:
        """Every message that was sent and has not ended, with the time when it was sent."""
        return ((flight.message, flight.sent_ns) for flight in self.flights())

    def flights(self) -> Iterator[Flight]:
        """Every message under way, and how far it is."""
        self.instants.take_apart()
        for at_ns, entries in self.instants.due.items():
            for _, queue, message, _, sent_ns, departure, place in (each for each in entries if not is_void(each)):
                unit = None if departure is None else departure.unit
                yield Flight(message, sent_ns, at_ns, () if unit is None else queue.path.stages[place + 1 :], unit)
        for unit in self.in_stages:
            yield Flight(*content_of(unit)[:2], None, (), unit)
        for end in self.ends.values():
            yield from (Flight(message, sent_ns, None, (), None) for _, message, _, sent_ns in end.held)

    def withdraw(self, flight: Flight) -> Parcel:
        """Take one message off its way; a stage that counts it still does, and can't bring it back."""
        self.instants.take_apart()
        message, unit = flight.message, flight.unit
        if unit is not None:
            queue = self.ends[message.src].queues[message.dst]
            parcel = _parcel(queue, unit)
            self.in_stages.pop(unit, None)
            unit.pending = unit.content = None
            return parcel
        for at_ns, entries in self.instants.due.items():
            for entry in entries:
                if entry[2] is message and entry[5] is None:
                    entries.remove(entry)
                    if entry[4] == at_ns:
                        entry[1].fewer()
                    return entry[1:5]
        target = self.ends[message.dst]
        parcel = next(each for each in target.held if each[1] is message)
        target.held.remove(parcel)
        parcel[0].fewer()
        return parcel

    def take_out(self, nodes: set[NodeId]) -> Iterable[Parcel]:
        """Take everything that `nodes` have sent off its way."""
        self.instants.take_apart()
        for at_ns, entries in self.instants.due.items():
            self.instants.due[at_ns] = [entry for entry in entries if entry[1].src not in nodes]
            for entry in entries:
                if entry[1].src in nodes and not is_void(entry):
                    yield entry[1:5]
        for unit, queue in [item for item in self.in_stages.items() if item[1].src in nodes]:
            del self.in_stages[unit]
            yield _parcel(queue, unit)
        for end in self.ends.values():
            yield from (parcel for parcel in end.held if parcel[0].src in nodes)
            end.held = [parcel for parcel in end.held if parcel[0].src not in nodes]


def unit_for(m: Message, nbytes: int, now: int, tie: int) -> Transit:
    """What stands for a message in the stages of its link."""
    return Transit(m.src, m.dst, m.kind, m.round, m.step, m.attempt, nbytes, 0, False, (m, now, tie))


def content_of(unit: Transit) -> tuple[Message, int, int]:
    """What the fabric put into the unit: the message, when it was sent, its place among those of one instant."""
    return unit.content  # type: ignore[return-value]


def _parcel(queue: EdgeQueue, unit: Transit) -> Parcel:
    message, sent_ns, _ = content_of(unit)
    return queue, message, unit.nbytes, sent_ns
