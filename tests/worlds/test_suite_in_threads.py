"""A toy world outside the package, each node a thread, passes the suite of worlds; nothing in netdfl knows of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from netdfl.testing.world_bench import Bench, Options
from netdfl.testing.world_ends import (
    LEARNING,
    full_disk,
    full_disk_aloud,
    interrupt,
    interrupt_aloud,
    quickstart,
    resume_of_a_killed_run,
    resume_without_the_last_rows,
    same_numbers_as_simulated,
    whole_record,
)
from netdfl.testing.world_faults import (
    crash_and_return_with_kept_state,
    crash_and_return_with_lost_state,
    crash_is_no_death,
    crash_of_the_server,
    kill_of_a_node,
    stall_skipped,
)
from netdfl.testing.world_links import shared_core_link
from netdfl.testing.worlds import WORLD_CHECKS, Check, TestedWorld, WorldDifference, name_of
from tests.warm import all_warm

ALOUD = "gRPC writes down the calls that end with the loop of a thread"
WORLD = TestedWorld(
    "threads",
    Options(world={"kind": "tests.worlds.threads:THREADS", "fidelity": {"relative": 100, "slack": "100s"}}),
    {
        resume_of_a_killed_run: WorldDifference(
            "a kill ends the supervisor and all nodes at one blow, and what they were about to record is lost",
            resume_without_the_last_rows,
        ),
        interrupt: WorldDifference(ALOUD, interrupt_aloud),
        full_disk: WorldDifference(ALOUD, full_disk_aloud),
        kill_of_a_node: WorldDifference("a thread can't be killed from outside"),
    },
)


APART = TestedWorld(
    "threads apart",
    Options(world={**WORLD.options.world, "apart": True}),
    WORLD.differs,
)
ACROSS = [
    quickstart,
    same_numbers_as_simulated,
    whole_record,
    pytest.param(crash_and_return_with_lost_state, marks=pytest.mark.soak),
    crash_of_the_server,
]
"""What shows that nodes go on as they should that share neither disk nor clock with their supervisor."""
RARELY = (
    crash_and_return_with_kept_state,
    crash_and_return_with_lost_state,
    crash_is_no_death,
    crash_of_the_server,
    resume_of_a_killed_run,
    stall_skipped,
    shared_core_link,
    full_disk,
)
"""For `tests.soak.in_full`: what is checked of nodes apart too, or of what the supervisor does in every world."""
CHECKS = [pytest.param(check, marks=[pytest.mark.soak] if check in RARELY else []) for check in WORLD_CHECKS]


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench(WORLD.options) as bench, all_warm():
        yield bench


@pytest.fixture(scope="module")
def bench_apart() -> Iterator[Bench]:
    with Bench(APART.options) as bench:
        yield bench


@pytest.mark.parametrize("check", CHECKS, ids=name_of)
def test_conformance(check: Check, bench: Bench) -> None:
    WORLD.hold(check, bench)


@pytest.mark.parametrize("check", ACROSS, ids=name_of)
def test_conformance_apart(check: Check, bench_apart: Bench) -> None:
    APART.hold(check, bench_apart)


def test_times_of_other_clocks_are_the_fleets(bench_apart: Bench) -> None:
    """Their clocks are hours apart; what they record is of the fleet's time all the same."""
    run = bench_apart.fleets(LEARNING)["quickstart"].run
    ((first, last, slowest),) = run.rows("SELECT min(sent_s), max(arrived_s), max(arrived_s - sent_s) FROM messages")
    assert -0.5 < first < last < 600
    assert slowest < 60
    assert all(file.stat().st_size for file in (run.path / "store").glob("messages-0*"))
