"""A mixing of a user's own sends along the edges of its round's graph alone, in every world."""

from __future__ import annotations

from pathlib import Path

import pytest

import netdfl
from netdfl.algorithms.own import check_receivers
from netdfl.core.errors import OwnPartError
from netdfl.core.rng import Streams
from netdfl.mixing.gossip import Gossip
from netdfl.mixing.slow_momentum import SlowMomentum
from netdfl.topology.catalog import TOPOLOGIES
from netdfl.topology.network import Network, without
from netdfl.topology.selection import PrivateSelection, RandomNeighbors

RING = Network(TOPOLOGIES["ring"](5, Streams(0)))


class Own(Gossip):
    """A mixing from outside netdfl."""


def test_a_neighbor_that_is_gone_may_be_sent_to_and_a_stranger_may_not() -> None:
    """Admission takes a message of every node with an edge, also of one that its sender calls gone."""
    gone = without(RING.view(0, 3), frozenset({4}), keep="rows")
    assert 4 not in gone.out_neighbors
    check_receivers(Own(), (1, 4), gone, lambda round, _: RING.view(0, round))
    with pytest.raises(OwnPartError, match=r"the mixing Own sends to 2 from node 0, and the graph of round 3 has no"):
        check_receivers(Own(), (1, 2), gone, lambda round, _: RING.view(0, round))


def test_a_mixing_inside_one_of_netdfls_is_looked_at_too() -> None:
    wrapped = [
        SlowMomentum(inner=inner, every=1, alpha=1.0, beta=0.5, base_mixes=True, rate=lambda view: 0.1)
        for inner in (Own(), Gossip())
    ]
    with pytest.raises(OwnPartError, match="the mixing Own sends to 2"):
        check_receivers(wrapped[0], (2,), RING.view(0, 0))
    check_receivers(wrapped[1], (2,), RING.view(0, 0))


def test_whoever_chooses_receivers_itself_may_choose_among_all_that_may_hear_it() -> None:
    network = Network(
        TOPOLOGIES["ring"](5, Streams(0)), selection=PrivateSelection(RandomNeighbors(5, Streams(0), k=1))
    )
    view = network.view(0, 0)
    (chosen,) = view.out_neighbors
    (other,) = {1, 4} - {chosen}
    check_receivers(Own(), (other,), view)
    with pytest.raises(OwnPartError, match=r"send to view\.may_send_to"):
        check_receivers(Own(), (2,), view)


def test_one_may_ask_over_an_edge_in_either_direction() -> None:
    view = Network(TOPOLOGIES["directed_ring"](5, Streams(0))).view(0, 0)
    check_receivers(Own(), (4,), view, asks=True)
    with pytest.raises(OwnPartError, match="sends to 4"):
        check_receivers(Own(), (4,), view)


LATE = """
from netdfl.extend import AnySgd, Gossip, gossip, local_sgd


class Own(Gossip):
    def outgoing(self, state, update, step, view):
        state, outbox = super().outgoing(state, update, step, view)
        if view.round == 7 and view.node == 2:
            outbox = {**outbox, 0: next(iter(outbox.values()))}
        return state, outbox


def mine(exchange, /, *, sgd: AnySgd = AnySgd(local_steps=1)):
    return gossip(exchange, local_sgd(sgd), mixing=Own())
"""


def test_a_stranger_in_a_late_round_ends_the_run_with_the_place(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(LATE)
    text = "schema: netdfl/1\nname: late\nnodes: 4\nrounds: 9\nworld: simulated\ntopology: ring\n"
    (tmp_path / "s.yaml").write_text(text + "task: {kind: quadratic, dim: 3}\nalgorithm: 'own:mine'\n")
    result = netdfl.run(tmp_path / "s.yaml", out=tmp_path / "run", page=False).result
    (reason,) = result["reasons"]
    assert "round 7: the mixing Own sends to 0 from node 2, and the graph of round 7 has no such edge" in reason
    assert f"({tmp_path}/own.py:6)" in reason
