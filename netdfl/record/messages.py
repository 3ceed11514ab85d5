"""Counts of a run's messages by how they ended (such as lost or late) and why, for the fleet and for each link."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from netdfl.core.fates import NOT_DELIVERED, Fate, FateClass, MessageCounts
from netdfl.core.types import Edge
from netdfl.record.run import Run


@dataclass(frozen=True, slots=True)
class MessageTotals:
    """A run's messages counted by how they ended; `why` counts the reasons for each end, such as `loss` and `queue`.

    `nbytes` is the bytes of all of them.

    A late message has the reason `deadline` where its receiver had waited until a deadline, and `went_on` where the
    receiver had enough messages from others, or expected none.
    """

    counts: MessageCounts
    why: Mapping[FateClass, Mapping[str, int]]
    nbytes: int = 0

    def to_json(self) -> dict[str, object]:
        """Return the entry `messages` of `result.json`."""
        return asdict(self.counts) | {"why": {name.value: dict(reasons) for name, reasons in self.why.items()}}


def shares(counts: MessageCounts) -> dict[str, float]:
    """Return the fraction of all sent messages that were lost, late, refused and so on: each class but delivered."""
    return {name: getattr(counts, name) / max(1, counts.sent) for name in NOT_DELIVERED}


def count_messages(run: Run) -> MessageTotals:
    """Count the messages that `run` recorded."""
    counts: Counter[str] = Counter()
    why: dict[FateClass, dict[str, int]] = {}
    totals = "SELECT fate, sum(messages)::BIGINT, sum(nbytes)::BIGINT FROM round_totals GROUP BY fate ORDER BY fate"
    all_bytes = 0
    for text, number, nbytes in run.rows(totals):
        fate = Fate.read(text)
        counts[fate.counts_as] += number
        all_bytes += nbytes
        if fate.reason:
            why.setdefault(fate.counts_as, {})[fate.reason] = number
    if counts[FateClass.LATE]:
        why[FateClass.LATE] = _why_late(run)
    return MessageTotals(MessageCounts(sent=counts.total(), **counts), why, all_bytes)


def _why_late(run: Run) -> dict[str, int]:
    rows = run.rows(
        "WITH ended AS (SELECT DISTINCT node AS dst, round, step FROM waits WHERE ended = 'deadline') "
        "SELECT CASE WHEN ended.dst IS NULL THEN 'went_on' ELSE 'deadline' END AS reason, count(*) "
        "FROM messages LEFT JOIN ended USING (dst, round, step) WHERE fate = 'late' GROUP BY reason ORDER BY reason"
    )
    return dict(rows)


def count_timeouts(run: Run) -> tuple[int, int]:
    """Return the number of waits that ended by a deadline with a message missing, and the number of all waits.

    Where a receiver can't know its senders, every wait ends by a deadline and nothing is missing.
    """
    ((timed_out, waits),) = run.rows(
        "SELECT count(*) FILTER (ended = 'deadline' AND json_array_length(missing) > 0), count(*) FROM waits"
    )
    return timed_out, waits


@dataclass(frozen=True, slots=True)
class LinkTraffic:
    """The messages and bytes that one link carried.

    `delay_s` is the median delay in seconds of messages that arrived and have a row in the record; None if there are
    none.
    """

    edge: Edge
    counts: MessageCounts
    nbytes: int
    delay_s: float | None


def count_by_link(run: Run) -> list[LinkTraffic]:
    """Return the traffic of every link that carried messages: most lost messages first, among equals most bytes."""
    rows = run.rows("SELECT src, dst, fate, messages, nbytes FROM link_totals")
    counts: defaultdict[Edge, Counter[str]] = defaultdict(Counter)
    carried: Counter[Edge] = Counter()
    for src, dst, text, number, nbytes in rows:
        counts[src, dst][Fate.read(text).counts_as] += number
        carried[src, dst] += nbytes
    took = run.rows("SELECT src, dst, median(arrived_s - sent_s) FROM messages GROUP BY src, dst")
    delays = {(src, dst): delay_s for src, dst, delay_s in took}
    found = [
        LinkTraffic(edge, MessageCounts(of.total(), **of), carried[edge], delays.get(edge))
        for edge, of in counts.items()
    ]
    return sorted(found, key=lambda link: (-link.counts.lost, -link.nbytes, link.edge))
