"""The suite of worlds in namespaces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from netdfl.testing.world_bench import Bench
from netdfl.testing.worlds import OWN_WORLDS, WORLD_CHECKS, Check, name_of

(WORLD,) = (world for world in OWN_WORLDS if world.name == "namespaces")


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench(WORLD.options) as bench:
        yield bench


@pytest.mark.parametrize("check", WORLD_CHECKS, ids=name_of)
def test_conformance(check: Check, bench: Bench) -> None:
    WORLD.hold(check, bench)
