"""The last messages on the edges of a stall, read from the run's record once it is whole."""

from __future__ import annotations

from collections.abc import Sequence

from netdfl.core.types import Json
from netdfl.record.run import Run

MOST_MESSAGES = 12


def with_messages(run: Run, findings: Sequence[Json]) -> list[Json]:
    """Each of `findings` with the last messages on the edges of its witness, both ways, before it was found."""
    return [{**finding, "messages": _last(run, finding)} for finding in findings]


def _last(run: Run, finding: Json) -> list[Json]:
    edges = [way for a, b in finding["witness"] for way in ((a, b), (b, a))]
    if not edges:
        return []
    srcs, dsts = zip(*edges, strict=True)
    columns = ("src", "dst", "kind", "round", "step", "attempt", "sent_s", "arrived_s", "fate")
    rows = run.rows(
        f"SELECT {', '.join(columns)} FROM messages "
        "WHERE (src, dst) IN (SELECT unnest($srcs), unnest($dsts)) "
        "AND kind NOT IN ('heartbeat', 'probe', 'query', 'status') "
        "AND sent_s <= $found_s ORDER BY sent_s DESC, src, dst, round DESC, step DESC, attempt DESC LIMIT $most",
        {"srcs": srcs, "dsts": dsts, "found_s": finding["found_s"], "most": MOST_MESSAGES},
    )
    return [dict(zip(columns, row, strict=True)) for row in reversed(rows)]
