"""The densities of ERK."""

from __future__ import annotations

from typing import Any

import pytest

from netdfl.core.rng import Streams
from netdfl.training.masked import MaskedSgd, _erk
from netdfl.training.sgd import LocalSgd

STREAMS = Streams(5)


def masked(**changed: Any) -> MaskedSgd:
    given: dict[str, Any] = {"density": 0.5, "layout": "uniform", "anneal": 0.5, "anneal_rounds": 4, "regrow": "random"}
    return MaskedSgd(sgd=LocalSgd(lr=0.1, steps=1), streams=STREAMS, **(given | changed))


@pytest.mark.parametrize("density", [0.05, 0.3, 0.6, 0.95, 1.0])
def test_erk_gives_small_layers_more_and_none_more_than_all(density: float) -> None:
    shapes = [(20, 30), (4, 5), (30, 10)]
    sizes, raw = [600, 20, 300], [50 / 600, 9 / 20, 40 / 300]
    found = _erk(shapes, density)
    assert max(found) <= 1.0
    assert sum(d * size for d, size in zip(found, sizes, strict=True)) == pytest.approx(density * 920)
    free = [(d / r) for d, r in zip(found, raw, strict=True) if d < 1.0]
    assert not free or max(free) == pytest.approx(min(free))
    assert masked(layout="erk", density=density).densities(shapes) == found
    assert masked(density=density).densities(shapes) == [density] * 3
