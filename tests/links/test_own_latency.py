"""A latency of a user's own that gives no time is refused when loaded, or ends the run with link, value and place."""

from __future__ import annotations

from math import nan
from pathlib import Path

import pytest

import netdfl
from netdfl.core.errors import OwnPartError, ScenarioError
from netdfl.core.types import Kind
from netdfl.links.rules.base import Transit
from netdfl.links.rules.latency import Delay, Latency, normal

UNIT = Transit(3, 5, Kind.DATA, 0, 0, 0, 100)


@pytest.mark.parametrize("gives", [-1.0, -0.5, nan, float("inf"), None])
def test_no_time_is_told_with_the_link_and_the_value(gives: float) -> None:
    stage = Latency(1, Delay(fifo=False, quantile=lambda u: gives))
    with pytest.raises(OwnPartError, match=r"on the link 3->5 an own latency gave a delay of .*max\(0, "):
        stage.advance(UNIT, 0)


def test_a_time_is_taken_as_it_is_and_netdfls_are_not_looked_at() -> None:
    assert Latency(1, Delay(fifo=False, quantile=lambda u: 0.5)).advance(UNIT, 7) == 7
    assert getattr(normal(mean=5, jitter=3).quantile, "__name__", "") == "quantile"


def test_a_constant_is_no_negative_one() -> None:
    with pytest.raises(ValueError, match="constant_ns = -5 is no delay"):
        Delay(fifo=True, constant_ns=-5)


OWN = """
from statistics import NormalDist
from netdfl.links.rules.latency import Delay


def mine(*, mean: float = 5e6):
    return Delay(fifo=False, quantile=NormalDist(mean, 3e6).inv_cdf, mean_ns=mean)


def rarely():
    return Delay(fifo=False, quantile=lambda u: -3.0 if 0.3 < u < 0.4 else 5e6)
"""


def written(folder: Path, latency: str) -> Path:
    """Write a scenario with an own latency."""
    (folder / "own.py").write_text(OWN)
    text = "schema: netdfl/1\nname: slow\nnodes: 4\nrounds: 6\nworld: simulated\ntopology: ring\nalgorithm: dfedavg\n"
    links = f"task: {{kind: quadratic, dim: 3}}\nlinks: {{default: {{latency: {latency}}}}}\n"
    (folder / "s.yaml").write_text(text + links)
    return folder / "s.yaml"


def test_a_normal_one_that_is_negative_is_refused_as_it_is_loaded(tmp_path: Path) -> None:
    netdfl.load(written(tmp_path, "{dist: 'own:mine', mean: 2.0e+7}"))
    told = (
        r"an own latency gave a delay of -\S+ ns at u = 1e-06: give 0 or more, as by max\(0, \.\.\.\) \(\S+/own.py:7\)"
    )
    with pytest.raises(ScenarioError, match=told):
        netdfl.load(written(tmp_path, "{dist: 'own:mine'}"))


def test_one_that_is_negative_at_times_ends_the_run(tmp_path: Path) -> None:
    result = netdfl.run(written(tmp_path, "{dist: 'own:rarely'}"), out=tmp_path / "run", page=False).result
    assert result["verdict"] == "unknown"
    told = " ".join(result["reasons"])
    assert "an own latency gave a delay of -3 ns" in told
    assert "on the link " in told
    assert f"({tmp_path}/own.py:11)" in told
