"""AD-PSGD: pairs meet and keep the mean; without the bipartite fix a ring of waits closes, with it none can."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from algorithm_fleets import DIM, EXCHANGE, STREAMS, N, quadratics
from hypothesis import given
from hypothesis import strategies as st

import netdfl
from netdfl.algorithms.bilateral import Desk
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.core.errors import MalformedMessage, ScenarioError
from netdfl.core.types import Inbox, Kind, Message, Payload
from netdfl.mixing.payloads import pack
from netdfl.record.judge import WELL
from netdfl.testing.rounds import first_states, play_rounds
from netdfl.topology.catalog import TOPOLOGIES
from netdfl.topology.network import Network
from netdfl.topology.selection import halves, inside
from netdfl.topology.weights import uniform
from netdfl.training.catalog import consensus

MIXING = ALGORITHMS["ad_psgd"].build(EXCHANGE).mixing


def asked(x: torch.Tensor, src: int = 0, dst: int = 1) -> Message:
    return Message(src, dst, Kind.REQUEST, 0, 0, 0, 0, pack(x))


def test_both_ends_of_an_exchange_get_the_mean() -> None:
    a, b = torch.randn(2, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    after_b, reply = MIXING.answer(b, asked(a))
    after_a = MIXING.settle(a, Inbox([Message(1, 0, Kind.REPLY, 0, 0, 0, 0, reply)]))
    torch.testing.assert_close(after_a, (a + b) / 2, rtol=0, atol=1e-15)
    torch.testing.assert_close(after_b, (a + b) / 2, rtol=0, atol=1e-15)


def test_a_reply_that_comes_after_the_asker_moved_on_still_keeps_the_sum() -> None:
    a, b, step = torch.randn(3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    after_b, reply = MIXING.answer(b, asked(a))
    after_a = MIXING.settle(a + step, Inbox([Message(1, 0, Kind.REPLY, 0, 0, 0, 0, reply)]))
    torch.testing.assert_close(after_a + after_b, a + b + step, rtol=0, atol=1e-14)


def test_a_request_of_another_shape_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        MIXING.answer(torch.zeros(3), Message(0, 1, Kind.REQUEST, 0, 0, 0, 0, Payload()))


class Replies:
    """What a desk has answered."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Payload]] = []

    def drawing(self, what: str, round: int, *key: int) -> AbstractContextManager[object]:
        return nullcontext()

    def reply(self, request: Message, payload: Payload) -> None:
        self.sent.append((request.round, payload))


def test_a_copy_of_an_older_request_after_a_newer_one_moves_nothing_and_a_new_life_asks_anew() -> None:
    replies = Replies()
    desk = Desk(replies, MIXING, torch.zeros(3))  # type: ignore[arg-type]
    first = asked(torch.ones(3))
    desk.answer(first)
    desk.answer(first._replace(round=1))
    before = desk.x.clone()
    desk.answer(first)
    assert [round for round, _ in replies.sent] == [0, 1]
    assert torch.equal(desk.x, before)
    desk.answer(first._replace(epoch=1))
    assert [round for round, _ in replies.sent] == [0, 1, 0]
    assert not torch.equal(desk.x, before)


def test_rounds_of_meetings_keep_the_mean_and_bring_nodes_together() -> None:
    topology = TOPOLOGIES["ring"](N, STREAMS)
    net = Network(topology, uniform, halves(topology))
    tasks = {i: consensus(i, STREAMS, dim=DIM) for i in range(N)}
    alg = ALGORITHMS["ad_psgd"].build(EXCHANGE)
    first = first_states(alg, tasks, net.view)
    start = torch.stack([s.x for s in first.values()])
    x = torch.stack([s.x for s in play_rounds(alg, first, tasks, net.view, 80).values()])
    torch.testing.assert_close(x, start.mean(0).expand_as(x), rtol=0, atol=1e-6)


@given(st.integers(3, 12), st.sampled_from(["ring", "full", "random_sym", "grid"]))
def test_an_active_node_asks_passive_ones_alone_and_they_ask_nobody(n: int, kind: str) -> None:
    n = 2 * n
    topology = TOPOLOGIES[kind](n, STREAMS)
    split = halves(topology)
    for round in range(3):
        graph = topology.graph(round)
        for node in range(n):
            chosen = split.select(node, round, graph.out_neighbors(node))
            assert all(peer in split.passive for peer in chosen)
            assert node not in split.passive or not chosen


@pytest.mark.parametrize(("n", "unused"), [(8, ()), (7, ((3, 4),))])
def test_a_ring_of_odd_length_has_one_link_inside_a_half(n: int, unused: tuple[Any, ...]) -> None:
    topology = TOPOLOGIES["ring"](n, STREAMS)
    assert inside(topology.graph(0), halves(topology)) == unused


def ring(folder: Path, n: int = 8, deadline: str = "none", **algorithm: Any) -> dict[str, Any]:
    """Every node first asks its successor."""
    file = folder / "scenario.yaml"
    file.write_text(
        json.dumps(
            {
                "schema": "netdfl/1",
                "name": "rendezvous",
                "nodes": n,
                "rounds": 5,
                "world": {"kind": "simulated"},
                "task": {"kind": "consensus"},
                "algorithm": {"name": "ad_psgd", "order": "successor"} | algorithm,
                "topology": {"kind": "ring"},
                "wait": {"deadline": deadline},
            }
        )
    )
    return netdfl.run(netdfl.load(file), out=folder / "run").result


def test_a_ring_whose_nodes_first_ask_their_successors_deadlocks(tmp_path: Path) -> None:
    result = ring(tmp_path, bipartite=False)
    assert result["verdict"] == "fail"
    assert len(result["deadlocks"]) == 1
    assert "0 for 1" in result["deadlocks"][0]["text"]


def test_with_the_bipartite_fix_it_finishes(tmp_path: Path) -> None:
    assert ring(tmp_path, bipartite=True)["verdict"] in WELL


def test_a_deadline_ends_the_waits(tmp_path: Path) -> None:
    assert ring(tmp_path, bipartite=False, deadline="1s")["verdict"] in WELL


def test_on_an_odd_ring_the_fix_is_refused_with_the_link_unless_it_may_be_left_out(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="3--4"):
        ring(tmp_path, n=7, bipartite=True)
    assert ring(tmp_path, n=7, bipartite=True, leave_out=True)["verdict"] in WELL


PAIRS: dict[str, Any] = {
    "schema": "netdfl/1",
    "name": "pairs",
    "nodes": 8,
    "rounds": 300,
    "world": {"kind": "simulated"},
    "task": {"kind": "consensus", "dim": 3},
    "algorithm": {"name": "ad_psgd"},
    "topology": {"kind": "ring"},
    "wait": {"deadline": "none"},
    "evaluation": {"every": 100},
}


def pairs(folder: Path, **keys: Any) -> dict[str, Any]:
    """A run of pure consensus on a ring, changed by `keys`."""
    file = folder / "pairs.yaml"
    file.write_text(json.dumps(PAIRS | keys))
    return netdfl.run(netdfl.load(file), out=folder / "run", page=False).result


@pytest.mark.parametrize(
    ("world", "nodes", "latency"),
    [("simulated", 8, "0s"), pytest.param("processes", 4, "5ms", marks=pytest.mark.soak)],
)
def test_who_answers_is_judged_after_the_last_exchange(world: str, nodes: int, latency: str, tmp_path: Path) -> None:
    """Without compute time those that answer were through before the first request came.

    Real askers would be some hundred rounds out of step on a busy machine; over links that take time they are not.
    """
    rounds = 300 if nodes == 8 else 40  # a ring of four agrees sooner
    links = {"default": {"latency": latency}}
    result = pairs(tmp_path, world={"kind": world}, nodes=nodes, rounds=rounds, links=links)
    assert result["error"] < 1e-14
    assert result["consensus_distance"] < 1e-10


def test_a_slow_asker_is_awaited_and_holds_up_nobody_else(tmp_path: Path) -> None:
    slow = {"kind": "simulated", "compute": "1ms", "stragglers": {"nodes": [1], "factor": 20}}
    result = pairs(tmp_path, world=slow, rounds=80)
    assert result["verdict"] in WELL, result["reasons"]
    assert result["error"] < 1e-14
    assert result["consensus_distance"] < 0.05


def test_under_loss_acknowledged_exchanges_keep_the_mean_and_plain_ones_do_not(tmp_path: Path) -> None:
    lossy = {"links": {"default": {"loss": "20%", "duplicate": "20%", "latency": "5ms"}}}
    kept = pairs(tmp_path, delivery="acknowledged", **lossy)
    assert kept["verdict"] in WELL, kept["reasons"]
    assert kept["messages"]["lost"] > 500
    assert kept["error"] < 1e-14
    assert kept["consensus_distance"] < 1e-7
    (tmp_path / "plain").mkdir()
    assert pairs(tmp_path / "plain", rounds=60, wait={"deadline": "50ms"}, **lossy)["error"] > 0.01


@pytest.mark.parametrize("node", [0, 1])
@pytest.mark.parametrize("detector", ["oracle", "none"])
def test_a_partner_that_dies_in_the_middle_of_exchanges_holds_up_nobody(
    node: int, detector: str, tmp_path: Path
) -> None:
    """Node 0 answers, node 1 asks; its neighbors go on by the failure detector, or by their deadlines."""
    result = pairs(
        tmp_path,
        rounds=30,
        world={"kind": "simulated", "compute": "5ms"},
        links={"default": {"latency": "5ms"}},
        failure_detector={"kind": detector},
        delivery="acknowledged",
        wait={"deadline": "none" if detector == "oracle" else "200ms"},
        events=[{"at": "107ms", "crash": node}],
    )
    assert not result["deadlocks"]
    assert all(stall["over"] for stall in result["stalls"]), result["stalls"]
    assert result["consensus_distance"] < 1.0


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_step_counts_before_or_after_the_nodes_own_exchange(order: str) -> None:
    topology = TOPOLOGIES["ring"](2 * DIM, STREAMS)
    net = Network(topology, uniform, halves(topology))
    tasks = quadratics(2 * DIM, noise=0.0)
    alg = ALGORITHMS["ad_psgd"].build(EXCHANGE, lr=0.3, local_steps=1, step=order)
    x = torch.stack([tasks[i].start for i in tasks])
    states = first_states(alg, tasks, net.view)
    for round in range(3):
        steps = torch.stack([-0.3 * tasks[i].curvature * (x[i] - tasks[i].center) for i in tasks])
        x = x + steps if order == "before" else x
        for i in tasks:
            peer = alg.mixing.peer(net.view(i, round))
            if peer is not None:
                x[[i, peer]] = x[[i, peer]].mean(0)
        x = x if order == "before" else x + steps
        states = play_rounds(alg, states, tasks, net.view, 1)
        torch.testing.assert_close(torch.stack([s.x for s in states.values()]), x, rtol=0, atol=1e-14)
