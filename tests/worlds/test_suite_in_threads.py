"""A toy world outside the package, each node a thread, passes the suite of worlds; nothing in netdfl knows of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from netdfl.testing.world_bench import Bench, Options
from netdfl.testing.world_ends import interrupt, refuses_to_resume, resume_of_a_killed_run
from netdfl.testing.world_faults import kill_of_a_node
from netdfl.testing.worlds import WORLD_CHECKS, Check, Differs, TestedWorld, name_of

WORLD = TestedWorld(
    "threads",
    Options(world={"kind": "tests.worlds.threads:THREADS", "fidelity": {"relative": 100, "slack": "100s"}}),
    {
        resume_of_a_killed_run: Differs("it does not say that its runs can be resumed", refuses_to_resume),
        kill_of_a_node: Differs("a thread can't be killed from outside"),
        interrupt: Differs("gRPC prints the calls that end with the loop of a thread, where silence is asked for"),
    },
)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench(WORLD.options) as bench:
        yield bench


@pytest.mark.parametrize("check", WORLD_CHECKS, ids=name_of)
def test_conformance(check: Check, bench: Bench) -> None:
    WORLD.hold(check, bench)
