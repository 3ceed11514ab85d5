"""Messages that acknowledged delivery gave up: sent as often as it may, and never answered."""

from __future__ import annotations

from typing import NamedTuple

from netdfl.record.run import Run


class GivenUp(NamedTuple):
    """How many `messages` were given up, how many of them never arrived (`lost`), and the weight in those.

    `lost_weight` is the push-sum weight that is gone for good; 0 for methods without weights.
    """

    messages: int
    lost: int
    lost_weight: float


def count_given_up(run: Run) -> GivenUp:
    """Count them in what `run` recorded.

    Where messages are sampled, one has come that has no row of its first sending: whatever was not delivered has one.
    """
    came = "SELECT DISTINCT src, dst, round, step FROM messages WHERE kind = 'data' AND fate = 'delivered'"
    if not run.sampling.is_all:
        first = "SELECT src, dst, round, step FROM messages WHERE kind = 'data' AND attempt = 0"
        came = f"{came} UNION SELECT src, dst, round, step FROM given WHERE (src, dst, round, step) NOT IN ({first})"
    ((messages, lost, weight),) = run.rows(
        "WITH given AS (SELECT node AS src, round, TRY_CAST(details->>'dst' AS INTEGER) AS dst, "
        "TRY_CAST(details->>'step' AS INTEGER) AS step, TRY_CAST(details->>'weight' AS DOUBLE) AS weight "
        "FROM events WHERE kind = 'given_up'), "
        f"came AS ({came}) "
        "SELECT count(*), count(*) FILTER (came.src IS NULL), "
        "coalesce(sum(weight) FILTER (came.src IS NULL), 0) FROM given LEFT JOIN came USING (src, dst, round, step)"
    )
    return GivenUp(messages, lost, weight)
