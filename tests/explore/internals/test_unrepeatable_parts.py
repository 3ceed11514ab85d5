"""A scenario whose runs differ though the seed is the same is no scenario to explore."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

import netdfl
from netdfl.core.errors import InputError
from netdfl.explore.execute import Executor, ExploredRun
from netdfl.explore.explore import Exploration
from netdfl.explore.rows import MemoryStore
from netdfl.scenario.model.schema import Scenario


def test_parts_that_draw_from_no_seed_are_refused(small: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    inner, seeds = Executor._supervise, count()

    def supervise(self: Executor, scenario: Scenario, rows: MemoryStore) -> ExploredRun:
        return inner(self, scenario.model_copy(update={"seed": next(seeds)}), rows)

    monkeypatch.setattr(Executor, "_supervise", supervise)
    lossy = {"default": {"latency": {"dist": "uniform", "low": "1ms", "high": "9ms"}, "loss": 0.2}}
    with pytest.raises(InputError, match="does not repeat: two runs with one seed gave two event logs"):
        Exploration(netdfl.load(small | {"links": lossy}))
