"""The suite of worlds for one of netdfl's own: what a module of tests takes as its `bench` and `test_conformance`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from netdfl.testing.world_bench import Bench
from netdfl.testing.worlds import WORLD_CHECKS, Check, name_of
from tests.own_worlds import OWN_WORLDS
from tests.warm import all_warm


def suite_of(name: str, rarely: Collection[Check] = ()) -> tuple[Callable[..., Any], Callable[..., None]]:
    """The fixture and the test that hold the world `name` to every check; `rarely` are for `tests.soak.in_full`."""
    (world,) = (world for world in OWN_WORLDS if world.name == name)

    @pytest.fixture(scope="module")
    def bench() -> Iterator[Bench]:
        # Theirs carry the mark of the bench, by which it knows what is left.
        with Bench(world.options) as bench, all_warm():
            yield bench

    checks = [pytest.param(check, marks=[pytest.mark.soak] if check in rarely else []) for check in WORLD_CHECKS]

    @pytest.mark.parametrize("check", checks, ids=name_of)
    def test_conformance(check: Check, bench: Bench) -> None:
        world.hold(check, bench)

    return bench, test_conformance
