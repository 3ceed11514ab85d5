"""What became of a run's messages, by class and reason, of the fleet and of each link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from netdfl.core.fates import FateClass, MessageCounts, class_of, reason_of
from netdfl.core.types import Edge
from netdfl.record.run import Run

MISSING = (
    "SELECT node, round, coalesce(TRY_CAST(details->>'step' AS BIGINT), 0) AS step, "
    "details->>'timed_out' = 'true' AS timed_out FROM events WHERE kind = 'missing'"
)
"""The waits that ended without somebody, a row each."""


@dataclass(frozen=True, slots=True)
class Messages:
    """A run's messages by class; `why` has the reasons within a class, such as `loss` and `queue` of what was lost.

    A late message has the reason `deadline` where its receiver had waited for it up to a deadline, and `went_on`
    where it had gone on otherwise: with enough from others, or because it expected nothing, or no more.
    """

    counts: MessageCounts
    why: Mapping[FateClass, Mapping[str, int]]

    def to_json(self) -> dict[str, Any]:
        """What `result.json` has under `messages`."""
        return asdict(self.counts) | {"why": {name.value: dict(reasons) for name, reasons in self.why.items()}}


def count_messages(run: Run) -> Messages:
    """Count what `run` recorded."""
    counts: dict[FateClass, int] = {}
    why: dict[FateClass, dict[str, int]] = {}
    for fate, number in run.rows("SELECT fate, count(*) FROM messages GROUP BY fate ORDER BY fate"):
        name, reason = class_of(fate), reason_of(fate)
        counts[name] = counts.get(name, 0) + number
        if reason:
            why.setdefault(name, {})[reason] = number
    if counts.get(FateClass.LATE):
        why[FateClass.LATE] = _why_late(run)
    return Messages(MessageCounts(sent=sum(counts.values()), **counts), why)


def _why_late(run: Run) -> dict[str, int]:
    rows = run.rows(
        f"WITH ended AS (SELECT node AS dst, round, step FROM ({MISSING}) WHERE timed_out GROUP BY ALL) "
        "SELECT CASE WHEN ended.dst IS NULL THEN 'went_on' ELSE 'deadline' END AS reason, count(*) "
        "FROM messages LEFT JOIN ended USING (dst, round, step) WHERE fate = 'late' GROUP BY reason ORDER BY reason"
    )
    return dict(rows)


def count_timeouts(run: Run) -> tuple[int, int]:
    """Waits for known nodes that their deadline ended, and all waits for which something came or was missing.

    Where a receiver can't know who sends, a deadline is how waits end: these are not among the first.
    """
    ((ended,),) = run.rows(f"SELECT count(*) FROM (SELECT DISTINCT node, round, step FROM ({MISSING}) WHERE timed_out)")
    if not ended:
        return 0, 0
    ((waits,),) = run.rows(
        "SELECT count(*) FROM (SELECT dst, round, step FROM messages WHERE kind IN ('data', 'reply') "
        f"AND arrived_s IS NOT NULL UNION SELECT node, round, step FROM ({MISSING}))"
    )
    return ended, waits


@dataclass(frozen=True, slots=True)
class LinkTraffic:
    """What crossed one link: `delay_s` is the median of what arrived, None where nothing did."""

    edge: Edge
    counts: MessageCounts
    nbytes: int
    delay_s: float | None


def count_by_link(run: Run) -> list[LinkTraffic]:
    """Every link that carried something, those that lost most first, then those that carried most."""
    rows = run.rows("SELECT src, dst, fate, count(*) FROM messages GROUP BY ALL")
    counts: dict[Edge, dict[FateClass, int]] = {}
    for src, dst, fate, number in rows:
        of_edge = counts.setdefault((src, dst), {})
        of_edge[class_of(fate)] = of_edge.get(class_of(fate), 0) + number
    carried = run.rows(
        "SELECT src, dst, sum(nbytes)::BIGINT, median(arrived_s - sent_s) FROM messages GROUP BY src, dst"
    )
    found = [
        LinkTraffic((src, dst), MessageCounts(sum(of.values()), **of), nbytes, delay_s)
        for src, dst, nbytes, delay_s in carried
        for of in (counts[src, dst],)
    ]
    return sorted(found, key=lambda link: (-link.counts.lost, -link.nbytes, link.edge))
