"""A measurement that the host of a virtual machine disturbed is made again, a bounded number of times."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.links.shared_traffic import SCENARIOS
from tests.soak import shared_networks
from tests.soak.disturbed import stolen_s
from tests.soak.shared_networks import TRIES, Nodes, play_all

NETWORK = "a reset"


def test_the_steal_of_all_cpus_is_read(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    assert stolen_s(stat) == 0, "a system that has no such file"
    stat.write_text("cpu  10 0 20 30 40 50 60 250 0 0\ncpu0 10 0 20 30 40 50 60 100 0 0\n")
    assert stolen_s(stat) == 250 / os.sysconf("SC_CLK_TCK")
    stat.write_text("cpu  10 0 20 30\n")
    assert stolen_s(stat) == 0, "a kernel that does not say"


class Played(Nodes):
    """Nodes whose messages all arrive as they do in the model, at once."""

    async def __aenter__(self) -> Nodes:
        return self

    async def __aexit__(self, *why: object) -> None:
        pass

    def say(self, node: int, what: dict[str, Any]) -> None:
        pass

    async def all(self, size: int, key: str) -> dict[int, Any]:
        network = SCENARIOS[NETWORK]
        arrivals = network.engine()
        sent = [[n, round(at * 1e9), arrivals[n]] for n, (at, *_) in enumerate(network.messages)]
        return {node: sent if not node else [] for node in range(size)} if key == "rows" else {}


@pytest.mark.parametrize("disturbed", [0, 3, TRIES])
def test_a_network_is_played_until_the_host_leaves_it_alone(
    disturbed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def steal() -> Iterator[float]:
        at_s = 0.0
        for n in range(TRIES + 1):
            yield at_s
            at_s += 0.21 if n < disturbed else 0.19
            yield at_s

    readings = steal()
    monkeypatch.setattr(shared_networks, "stolen_s", lambda: next(readings))
    monkeypatch.setattr(shared_networks, "Nodes", Played)
    counted = asyncio.run(play_all(NETWORK))
    out, err = capsys.readouterr()
    assert err.count("not counted: the host took 0.21 s of CPU time") == disturbed
    if disturbed == TRIES:
        assert counted.failures == [f"{NETWORK}: not measured, the machine was too busy"]
    else:
        assert (counted.count, counted.failures) == (len(SCENARIOS[NETWORK].messages), [])
        assert out.count(NETWORK) == 1
