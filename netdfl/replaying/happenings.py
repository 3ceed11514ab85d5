"""The events in a replayed fleet: the numbered messages of each edge, and the latest events as text."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from typing_extensions import override

from netdfl.core.clock import NS_PER_S
from netdfl.core.fates import Fate, FateClass
from netdfl.core.outcome import Outcome
from netdfl.core.types import Edge, Kind, MessageId, NodeId, Payload
from netdfl.record.base import Store
from netdfl.record.event_log import EventLog, LoggingRecorder
from netdfl.replaying.checking import RecordedRows
from netdfl.transport.simulated.fabric import FabricFlight

ASIDE = frozenset({Kind.HEARTBEAT, Kind.PROBE, Kind.QUERY, Kind.STATUS})
"""Kinds of messages that get no number on their edge, because they are sent independently of the rounds."""
MOST_NEWS = 30
LOST = frozenset({FateClass.LOST, FateClass.UNDELIVERABLE, FateClass.REFUSED})


class EndedMessage(NamedTuple):
    """A message whose fate is known: its time of sending, and all its fates (a duplicate has a second one)."""

    sent_ns: int
    fates: tuple[Fate, ...]

    @property
    def lost(self) -> bool:
        """Whether no copy of the message arrived."""
        return all(fate.counts_as in LOST for fate in self.fates)

    @property
    def words(self) -> str:
        """A phrase for people: whether the message was lost or has come, and when it was sent."""
        how = ", then ".join(map(str, self.fates))
        return f"{'was lost' if self.lost else 'has come'} ({how}; sent at {seconds(self.sent_ns)})"


class NewsItem(NamedTuple):
    """An event with its time, as text for people."""

    at_ns: int
    text: str


class Happenings:
    """A log of the latest events in a replayed fleet.

    `messages` is the number of messages whose fate is known, `round` is the highest round that a node has begun.
    """

    def __init__(self, record: RecordedRows | None) -> None:
        """Start an empty log; messages are also checked against the run's `record`, unless this is None."""
        self.record = record
        self.ended: defaultdict[Edge, dict[MessageId, EndedMessage]] = defaultdict(dict)
        self.news: deque[NewsItem] = deque(maxlen=MOST_NEWS)
        self.messages = 0
        self.round = -1

    def outcome(self, at_ns: int, outcome: Outcome) -> None:
        """Add messages whose fate (delivered, lost and so on) has just become known, as events."""
        if self.record is not None:
            self.record.outcome(at_ns, outcome)
        edges, id, _, sent_ns, _, fate = outcome
        if id.kind in ASIDE:
            return
        self.messages += len(edges)
        for edge in edges:
            before = self.ended[edge].get(id)
            self.ended[edge][id] = EndedMessage(sent_ns, (fate,) if before is None else (*before.fates, fate))
            self.news.append(NewsItem(at_ns, f"{id.kind} {edge[0]}->{edge[1]} of round {id.at.round}: {fate}"))

    def begun(self, at_ns: int, node: NodeId, round: int) -> None:
        """Store that `node` has begun `round`; if it is the first node in that round, add an event."""
        if round > self.round:
            self.round = round
            self.say(at_ns, f"node {node} is the first in round {round}")

    def say(self, at_ns: int, text: str) -> None:
        """Add a text, such as a note of the fleet's supervisor, as an event."""
        self.news.append(NewsItem(at_ns, text))

    def numbers(self, edge: Edge, flights: Iterable[FabricFlight]) -> dict[MessageId, int]:
        """Return the number of each message sent over `edge` so far, counted from 1 in order of sending.

        `flights` are all messages now in flight.
        """
        sent = {key: ended.sent_ns for key, ended in self.ended[edge].items()}
        for where, (_, (id, _, sent_ns)), _, _ in flights:
            if where.edge == edge and id.kind not in ASIDE:
                sent.setdefault(id, sent_ns)
        in_order = sorted(sent, key=lambda key: (sent[key], *key[1:], key[0]))
        return {key: number for number, key in enumerate(in_order, start=1)}


class HappeningsRecorder(LoggingRecorder):
    """A recorder of a replayed run that also passes message fates and metrics on to a `Happenings` and its check."""

    def __init__(self, store: Store, log: EventLog, happenings: Happenings, now_ns: Callable[[], int]) -> None:
        """Record to `store` and the event `log`, and pass rows on to `happenings`; `now_ns` reads the fleet's clock."""
        super().__init__(store, log)
        self._happenings, self._now_ns = happenings, now_ns

    @override
    def outcome(self, outcome: Outcome, payloads: Sequence[Payload]) -> None:
        super().outcome(outcome, payloads)
        self._happenings.outcome(self._now_ns(), outcome)

    @override
    def metrics(self, at_ns: int, node: NodeId | None, round: int, figures: Mapping[str, float]) -> None:
        super().metrics(at_ns, node, round, figures)
        if (record := self._happenings.record) is not None:
            for name, value in figures.items():
                record.metric(at_ns, node, round, name, value)


def seconds(at_ns: int) -> str:
    """Return nanoseconds of virtual time as text in seconds: `12.3 s`, with up to nine decimals."""
    return f"{at_ns / NS_PER_S:.9f}".rstrip("0").rstrip(".") + " s"
