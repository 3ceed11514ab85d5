"""Every algorithm of the catalog runs in the simulated world on digits, a server's over links with loss too."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from method_scenarios import scenario

import netdfl
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange
from netdfl.record.judge import WELL
from tests.study.known_figures import expect_known, recorded

SERVER_METHODS = [name for name, entry in ALGORITHMS.items() if entry.family == "server"]
SAMPLED = ("fedavg", "scaffold", "feddyn", "fedsmoo", "fedsynsam", "dynafed_synonly")
"""Those of them that differ in what travels and in what the server keeps."""


def parts(name: str) -> tuple[str, ...]:
    """The classes of which a method is made, and whether its steps ascend first."""
    return tuple(re.findall(r"\b[A-Z]\w+(?=\()|rho=0\.0(?=,)", repr(ALGORITHMS[name].build(Exchange()))))


FIRST = {parts(name): name for name in reversed(ALGORITHMS)}.values()
"""Of the methods that differ in values alone, the first; the others are for the soak."""


def run(scenario: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The run's result."""
    file = folder / "scenario.yaml"
    file.write_text(json.dumps(scenario))
    return netdfl.run(netdfl.load(file), out=folder / "run", page=False).result


def test_a_loss_that_became_nan_ends_its_node_by_name_and_the_run_with_fail(tmp_path: Path) -> None:
    exploding = scenario("dfedavg") | {"algorithm": {"name": "dfedavg", "lr": 1e12, "local_steps": 5}}
    result = run(exploding, tmp_path)
    assert result["verdict"] == "fail"
    assert {death["node"] for death in result["died"]} == set(range(6))
    assert all("local step" in death["reason"] and "loss became" in death["reason"] for death in result["died"])
    assert any("had a loss that is not finite in round 0" in reason for reason in result["reasons"])


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FIRST else [pytest.mark.soak]) for name in ALGORITHMS]
)
def test_it_runs_on_digits(name: str, tmp_path: Path) -> None:
    result = run(scenario(name), tmp_path)
    expect_known(recorded(netdfl.open_run(tmp_path / "run")), tmp_path)
    assert result["verdict"] in WELL, result["reasons"]
    assert result["messages"]["sent"] > 0
    assert 0.0 <= result["test_accuracy"]["average_model"]["last"] <= 1.0


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SAMPLED else [pytest.mark.soak]) for name in SERVER_METHODS]
)
def test_a_star_that_loses_a_tenth_of_its_messages_ends_with_a_verdict(name: str, tmp_path: Path) -> None:
    lossy = scenario(name, rounds=6, links={"default": {"loss": "10%", "latency": "5ms"}}, wait={"deadline": "200ms"})
    result = run(lossy, tmp_path)
    assert result["verdict"] in WELL, result["reasons"]
    assert result["messages"]["lost"] > 0
    assert result["rounds"] == 6


@pytest.mark.parametrize("deadline", ["auto", "none"])
def test_whatever_the_deadline_a_star_under_loss_does_not_hang(deadline: str, tmp_path: Path) -> None:
    """Without one a lost message is waited for for ever: the run ends as a fail that names who waits."""
    lossy = scenario("scaffold", rounds=6, links={"default": {"loss": "10%"}}, wait={"deadline": deadline})
    result = run(lossy, tmp_path)
    assert result["verdict"] == ("done" if deadline == "auto" else "fail"), result["reasons"]
    assert deadline == "auto" or any("wait" in reason for reason in result["reasons"])
