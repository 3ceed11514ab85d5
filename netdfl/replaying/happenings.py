"""What happened in a fleet that is played: the messages of each edge, numbered, and the latest news in words."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from netdfl.core.clock import NS_PER_S
from netdfl.core.fates import Fate, FateClass
from netdfl.core.outcome import Outcome
from netdfl.core.types import Edge, Kind, MessageId, NodeId, Payload
from netdfl.record.base import Store
from netdfl.record.event_log import EventLog, LoggingRecorder
from netdfl.replaying.checking import Record
from netdfl.transport.simulated.under_way import Flight

ASIDE = frozenset({Kind.HEARTBEAT, Kind.PROBE, Kind.QUERY, Kind.STATUS})
"""Kinds that are not numbered: what goes on beside the rounds."""
MOST_NEWS = 30
LOST = frozenset({FateClass.LOST, FateClass.UNDELIVERABLE, FateClass.REFUSED})


class Ended(NamedTuple):
    """A message that ended: when it was sent, and each fate that it had (a copy has one of its own)."""

    sent_ns: int
    fates: tuple[Fate, ...]

    @property
    def lost(self) -> bool:
        """Whether nothing of it came."""
        return all(fate.counts_as in LOST for fate in self.fates)


class News(NamedTuple):
    """Something that happened, in words."""

    at_ns: int
    text: str


class Happenings:
    """Hears all that is recorded. `messages` counts those that ended, `round` is the highest that was begun."""

    def __init__(self, record: Record | None) -> None:
        """Check what is played against `record`, until that is None."""
        self.record = record
        self.ended: defaultdict[Edge, dict[MessageId, Ended]] = defaultdict(dict)
        self.news: deque[News] = deque(maxlen=MOST_NEWS)
        self.messages = 0
        self.round = -1

    def outcome(self, at_ns: int, outcome: Outcome) -> None:
        """Messages ended."""
        if self.record is not None:
            self.record.outcome(at_ns, outcome)
        edges, id, _, sent_ns, _, fate = outcome
        if id.kind in ASIDE:
            return
        self.messages += len(edges)
        for edge in edges:
            before = self.ended[edge].get(id)
            self.ended[edge][id] = Ended(sent_ns, (fate,) if before is None else (*before.fates, fate))
            self.news.append(News(at_ns, f"{id.kind} {edge[0]}->{edge[1]} of round {id.at.round}: {fate}"))

    def begun(self, at_ns: int, node: NodeId, round: int) -> None:
        """`node` says that it is in `round`."""
        if round > self.round:
            self.round = round
            self.say(at_ns, f"node {node} is the first in round {round}")

    def say(self, at_ns: int, text: str) -> None:
        """The supervisor tells something."""
        self.news.append(News(at_ns, text))

    def numbers(self, edge: Edge, flights: Iterable[Flight]) -> dict[MessageId, int]:
        """The messages of `edge` so far, numbered from 1 in the order in which they were sent."""
        sent = {key: ended.sent_ns for key, ended in self.ended[edge].items()}
        for flight in flights:
            if (flight.message.src, flight.message.dst) == edge and flight.message.kind not in ASIDE:
                sent.setdefault(flight.message.id, flight.sent_ns)
        in_order = sorted(sent, key=lambda key: (sent[key], *key[1:], key[0]))
        return {key: number for number, key in enumerate(in_order, start=1)}


class HeardRecorder(LoggingRecorder):
    """A recorder of the simulated world that lets `happenings` hear of every row."""

    def __init__(self, store: Store, log: EventLog, happenings: Happenings, now_ns: Callable[[], int]) -> None:
        """As `LoggingRecorder`; `now_ns` is the fleet's clock."""
        super().__init__(store, log)
        self._happenings, self._now_ns = happenings, now_ns

    def outcome(self, outcome: Outcome, payloads: Sequence[Payload]) -> None:
        """Take the fate of messages, and the contents of each."""
        super().outcome(outcome, payloads)
        self._happenings.outcome(self._now_ns(), outcome)

    def metrics(self, at_ns: int, node: NodeId | None, round: int, figures: Mapping[str, float]) -> None:
        """Numbers of one round."""
        super().metrics(at_ns, node, round, figures)
        if (record := self._happenings.record) is not None:
            for name, value in figures.items():
                record.metric(at_ns, node, round, name, value)


def seconds(at_ns: int) -> str:
    """A moment of the fleet's time: `12.3 s`, to the nanosecond where it has such digits."""
    return f"{at_ns / NS_PER_S:.9f}".rstrip("0").rstrip(".") + " s"
