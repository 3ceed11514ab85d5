"""NaN in a message: refused, counted or passed as the scenario says, and never laid to its receiver's charge."""

from __future__ import annotations

import math
from typing import Any

import pytest
from small_scenario import Run, small

from netdfl.core.errors import ScenarioError
from netdfl.core.types import Outbox, View
from netdfl.mixing.gossip import Gossip, GossipState
from netdfl.mixing.pairwise import Pairwise
from netdfl.mixing.payloads import pack, to_all
from netdfl.mixing.push_sum import OverlappedPushSum
from netdfl.record.judge import WELL
from netdfl.training.base import Update

outgoing = Gossip.outgoing
give = OverlappedPushSum.give


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 0 sends NaN to both neighbors in round 1, and is well itself."""

    def sent(self: Gossip, state: GossipState, update: Update, step: int, view: View) -> tuple[GossipState, Outbox]:
        if (view.node, view.round) == (0, 1):
            return state, to_all(view, pack(update.x * math.nan))
        return outgoing(self, state, update, step, view)

    monkeypatch.setattr(Gossip, "outgoing", sent)


QUADRATIC = ("task={kind: quadratic, dim: 10}", "algorithm={name: dfedavg, local_epochs: 1, lr: 0.1}")
REFUSED = {"src": 0, "reason": "not_finite", "messages": 2, "first_round": 1, "nodes": [1, 3]}


def counted(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was counted, without the words."""
    return [{name: each[name] for name in REFUSED} for each in entries]


@pytest.mark.usefixtures("poisoned")
def test_by_default_it_is_refused_and_its_sender_named(simulated: Run) -> None:
    result = simulated(*QUADRATIC).result
    assert (result["verdict"], result["died"], result["mixed_not_finite"]) == ("done", [], [])
    assert counted(result["refused"]) == [REFUSED]
    assert result["consensus_distance"] < 10


@pytest.mark.usefixtures("poisoned")
def test_a_refusal_is_one_of_some(simulated: Run) -> None:
    assert simulated("expect.not_finite=some").result["verdict"] == "pass"


def test_without_any_some_fails(simulated: Run) -> None:
    result = simulated("expect.not_finite=some").result
    assert result["reasons"] == ["not_finite: some was expected, none occurred"]


@pytest.mark.usefixtures("poisoned")
def test_a_missing_neighbor_is_what_a_refused_one_becomes(simulated: Run) -> None:
    """The weights of what was refused stay with the receivers, as where a link loses it and they know."""
    lost = [f"{{at_round: 1, link: 0->{j}, loss: 1.0}}" for j in (1, 3)]
    missed = simulated("rounds=2", f"events=[{', '.join(lost)}]", "wait.deadline=1s").result
    refused = simulated("rounds=2").result
    assert refused["consensus_distance"] == missed["consensus_distance"]


@pytest.mark.usefixtures("poisoned")
def test_counted_it_is_mixed_and_whoever_falls_by_it_says_whose_it_was(simulated: Run) -> None:
    result = simulated(*QUADRATIC, "wait.on_not_finite=count").result
    assert (result["verdict"], result["refused"]) == ("fail", [])
    assert counted(result["mixed_not_finite"])[0] == REFUSED
    assert "node 0 sent NaN or infinity, first in round 1: 2 messages mixed by nodes 1, 3" in result["reasons"]
    reasons = {death["node"]: death["reason"] for death in result["died"]}
    assert reasons[1].endswith("the model was not finite when the round began, as what node 0 had sent; " + REMEDY)


REMEDY = "lower lr, or rho where the method has one, or set clip_norm"


@pytest.mark.usefixtures("poisoned")
def test_passed_it_is_mixed_and_nobody_looks(simulated: Run) -> None:
    result = simulated(*QUADRATIC, "wait.on_not_finite=pass", "expect.not_finite=some").result
    assert (result["refused"], result["mixed_not_finite"]) == ([], [])
    assert result["verdict"] in WELL, result["reasons"]
    assert result["died"][0]["reason"].endswith("the model was not finite when the round began; " + REMEDY)


def test_who_makes_a_nan_dies_of_it_named(simulated: Run) -> None:
    """One node's rate explodes: nothing that it made reaches the others."""
    explodes = ("task={kind: quadratic, dim: 4}", "algorithm={name: dfedavg, local_epochs: 2000, lr: 1e9}", "rounds=1")
    result = simulated(*explodes).result
    assert result["verdict"] == "fail"
    assert result["reasons"][0].startswith("node 0 died in round 0: training error: local step")
    assert result["messages"]["sent"] == 0
    assert simulated(*explodes, "expect.not_finite=some").result["verdict"] == "pass"


def test_late_mass_and_requests_are_looked_at_too(simulated: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def gives(self: OverlappedPushSum, state: Any, x: Any, view: View) -> Any:
        bad = math.nan if (view.node, view.round) == (0, 1) else 1.0
        return (*give(self, state, x, view)[:2], give(self, state, x * bad, view)[2])

    monkeypatch.setattr(OverlappedPushSum, "give", gives)
    directed = ("topology={kind: directed_ring}", "algorithm={name: asyng}", "wait={deadline: 1s}")
    assert counted(simulated(*directed).result["refused"]) == [REFUSED | {"messages": 1, "nodes": [1]}]

    monkeypatch.setattr(Pairwise, "request", lambda self, x: pack(x * math.nan))
    result = simulated("algorithm={name: ad_psgd}", "wait={deadline: 1s}").result
    assert {each["reason"] for each in result["refused"]} == {"not_finite"}
    assert (result["verdict"], result["died"]) == ("fail", [])
    assert result["reasons"][0] == "8 of 12 messages held NaN or infinity and were refused"


def test_compressors_encode_no_nan_so_it_can_only_be_refused() -> None:
    with pytest.raises(ScenarioError, match="no compressor can encode"):
        small("compression={kind: qsgd, bits: 8}", "wait.on_not_finite=count")


def test_a_run_most_of_whose_messages_were_nan_is_not_well(simulated: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody dies of what nobody mixes, and figures may look well: every node trains alone."""

    def sent(self: Gossip, state: GossipState, update: Update, step: int, view: View) -> tuple[GossipState, Outbox]:
        return state, to_all(view, pack(update.x * math.nan))

    monkeypatch.setattr(Gossip, "outgoing", sent)
    for expect in ((), ("expect.not_finite=none",), ("expect.deadlock=none",)):
        result = simulated(*QUADRATIC, *expect).result
        assert (result["verdict"], result["died"]) == ("fail", [])
        assert any("sent NaN or infinity" in reason for reason in result["reasons"])
    assert simulated(*QUADRATIC, "expect.not_finite=some").result["verdict"] == "pass"


@pytest.mark.usefixtures("poisoned")
def test_one_refused_message_breaks_the_none_that_is_said(simulated: Run) -> None:
    result = simulated(*QUADRATIC, "expect.not_finite=none").result
    assert result["verdict"] == "fail"
    assert result["reasons"] == ["node 0 sent NaN or infinity, first in round 1: 2 messages refused by nodes 1, 3"]


@pytest.mark.parametrize("name", ["scaffold", "qg_dsgdm"])
def test_a_schedule_that_ends_before_the_run_leaves_it_well(name: str, simulated: Run) -> None:
    star = ("topology={kind: star}",) if name == "scaffold" else ()
    algorithm = f"algorithm={{name: {name}, lr: 0.1, local_steps: 2, schedule: {{kind: cosine, rounds: 2}}}}"
    result = simulated(QUADRATIC[0], algorithm, *star, "rounds=5", "expect.not_finite=none").result
    assert (result["verdict"], result["died"], result["refused"]) == ("pass", [], [])


def test_who_gives_and_hears_nothing_keeps_a_model_after_its_weight_underflowed(simulated: Run) -> None:
    """Node 0 halves its x and its w in each round; a float32 is 0 after 149 of them, w goes on for a thousand."""
    directed = ("topology={kind: directed_ring}", "algorithm={name: sgp, lr: 0.1}", "wait={deadline: 10ms}")
    deaf = ("links={3->0: {loss: 1.0}}", "rounds=200", "evaluation={every: 50}", "record={messages: every 100th}")
    task = "task={kind: consensus, dim: 4, dtype: float32}"
    result = simulated(task, *directed, *deaf, "expect.not_finite=none").result
    assert (result["verdict"], result["died"], result["refused"]) == ("pass", [], [])
    assert 0.0 <= result["consensus_distance"] < 100.0


def test_a_node_that_diverges_at_a_small_weight_says_so(simulated: Run) -> None:
    """Steps of the same length move a lighter node further: node 0 hears nothing, and node 1 little but of it."""
    directed = ("topology={kind: directed_ring}", "algorithm={name: sgp, lr: 0.5}", "wait={deadline: 10ms}")
    deaf = ("links={3->0: {loss: 1.0}}", "rounds=60")
    result = simulated("task={kind: quadratic, dim: 4, dtype: float32}", *directed, *deaf).result
    assert result["died"]
    assert all("at a push-sum weight of" in death["reason"] for death in result["died"])
    assert "low_weight" in {each["kind"] for each in result["warnings"]}
