"""Checks of links that a fleet shares, for every world (way to execute a fleet), and their scenarios."""

from __future__ import annotations

from collections.abc import Mapping

from netdfl.record.judge import ExitCode
from netdfl.record.run import Run
from netdfl.testing.world_bench import Bench, Keys

RATE_BPS, NBYTES = 4_000_000, 100_000
SHARED_CORE: Mapping[str, Keys] = {
    "shared-core": {
        "nodes": 4,
        "rounds": 2,
        "task": {"kind": "consensus", "dim": NBYTES // 8},
        "algorithm": "dpsgd",
        "topology": "full",
        "wait": {"deadline": "none"},
        "underlay": {"links": {"a--b": {"rate": f"{RATE_BPS}bit"}}, "place": {"0..1": "a", "2..3": "b"}},
    }
}
"""Four nodes on two sites: in each round four messages cross the core link between them, in each direction."""
LEAST_S = 4 * NBYTES * 8 / RATE_BPS
"""The seconds that the messages of one round and direction take if they share the core link."""
_OVER = """
    SELECT round, count(*), max(arrived_s) - min(sent_s) FROM messages
    WHERE kind = 'data' AND src < 2 AND dst > 1 GROUP BY round ORDER BY round
"""


def shared_core_link(bench: Bench) -> None:
    """Check that messages over one core link share its rate, and that the run names it as its bottleneck."""
    shared = bench.fleets(SHARED_CORE)["shared-core"]
    # unknown: links did not keep their times, and no check of the suite is about that
    assert shared.exit_code in (ExitCode.PASS, ExitCode.UNKNOWN), shared.result["reasons"]
    hold_core_link(shared.run)


def hold_core_link(run: Run) -> None:
    """Raise AssertionError unless messages of `run`, which is finished, shared the core link's rate.

    The run's result must name that link as the bottleneck.
    """
    narrow = run.result["time"]["bottleneck"]
    assert narrow["link"] in ("a->b", "b->a"), narrow
    assert narrow["links"] == 4, narrow
    rounds = run.rows(_OVER)
    assert [count for _, count, _ in rounds] == [4, 4], rounds
    assert all(took_s > 0.9 * LEAST_S for *_, took_s in rounds), f"{rounds}: more than the core link's rate crossed it"
