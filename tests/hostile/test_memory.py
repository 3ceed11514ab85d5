"""What a stranger costs a node or a supervisor in memory: two of the attacks of `tests.soak.floods`, for a moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak import floods

UNBOUNDED = "rapid reset, stranger", "reports before the secret is shown"
"""Those that cost hundreds of MB where nothing bounds them."""


@pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="the system does not tell what a process keeps"
)
@pytest.mark.parametrize("name", [UNBOUNDED[0], pytest.param(UNBOUNDED[1], marks=pytest.mark.soak)])
def test_a_flood_of_a_stranger_costs_little(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Two of three tries are within the bound, so their median is."""
    monkeypatch.setattr(floods, "SECONDS", 0.6)
    monkeypatch.setattr(floods, "SETTLING_S", 0.3)
    kind, attack, most = floods.ATTACKS[name]
    costs: list[float] = []
    while sum(each <= most for each in costs) < 2:
        cost = floods.cost(kind, attack)
        costs.append(cost.peak - cost.before)
        assert sum(each > most for each in costs) < 2, f"{costs} MB"
