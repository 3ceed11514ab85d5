"""The suite of worlds on machines that share neither disk nor clock nor network with their supervisor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from netdfl.testing.world_bench import Bench, Options
from netdfl.testing.world_ends import resume_of_a_killed_run, resume_without_the_last_rows
from netdfl.testing.worlds import WORLD_CHECKS, Check, TestedWorld, WorldDifference, name_of
from tests.machines.separated import Separated, missing
from tests.warm import own_source

pytestmark = [
    pytest.mark.soak,  # every machine is a process more that imports torch, in each of twenty runs
    pytest.mark.skipif(bool(missing()), reason=missing() or "they can be made here"),
]


DIFFERS = {
    resume_of_a_killed_run: WorldDifference(
        "what nodes record comes a few times a second: a kill takes the last of it", resume_without_the_last_rows
    )
}


@pytest.fixture(scope="module")
def machines() -> Iterator[Separated]:
    with Separated(2) as machines:
        yield machines


@pytest.fixture(scope="module")
def world(machines: Separated) -> TestedWorld:
    fidelity = {"relative": 100, "slack": "100s"}
    kind = {"kind": "tests.machines.separated:SEPARATED", "machines": machines.told}
    return TestedWorld("machines", Options(world={**kind, "fidelity": fidelity}), DIFFERS)


@pytest.fixture(scope="module")
def bench(world: TestedWorld) -> Iterator[Bench]:
    with Bench(world.options) as bench, own_source():
        yield bench


@pytest.mark.parametrize("check", WORLD_CHECKS, ids=name_of)
def test_conformance(check: Check, bench: Bench, world: TestedWorld) -> None:
    world.hold(check, bench)
