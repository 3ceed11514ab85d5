"""A user's own graph, weights, shares and draws are the same wherever they are asked for, and nodes meet by them."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.core.errors import ScenarioError
from netdfl.running.prepare import check_ready
from netdfl.scenario.load import load
from netdfl.scenario.model.contracts import CONTRACTS
from tests.scenario.scenarios_of_parts import definition, refused, written

BY_CHANCE = {
    "topology": "return static(Graph.undirected(num_nodes, ordered(CHANCE.permutation(num_nodes))))",
    "weights": "return weighted(graph, CHANCE.random() / 2)",
    "selection": "return Chosen()",
    "partition": "return np.array_split(CHANCE.permutation(len(labels)), num_clients)",
    "augmentation": "return x + CHANCE.normal()",
    "compression": "return Dithered()",
    "loss": "return Lossy()",
    "compute time": "return lambda node, round: int(CHANCE.integers(1000))",
}
"""Parts that draw from a generator of their own, which goes on. Others give nothing to compare."""


@pytest.mark.parametrize("what", sorted(BY_CHANCE))
def test_a_part_that_takes_chance_from_elsewhere_is_refused(tmp_path: Path, what: str) -> None:
    """Each node and machine calls it for itself: with other graphs or shares a run would be wrong in silence."""
    program = """
import numpy as np
from netdfl.extend import Compressor, EncodedVector, Graph, MixingMatrix, static, to_array, to_tensor

CHANCE = np.random.default_rng(3)
def weighted(graph, share):
    return MixingMatrix(graph, np.full(graph.num_edges, share), np.full(graph.num_nodes, 1 - 2 * share))
def ordered(nodes): return [(nodes[at - 1], nodes[at]) for at in range(len(nodes))]
class Chosen:
    receivers_know = True
    def select(self, node, round, candidates): return tuple(each for each in candidates if CHANCE.random() < .5)
class Lossy:
    def lost(self, unit): return CHANCE.random() < .5
class Dithered(Compressor):
    def variance(self, dim): return 1.0
    def compress(self, x, rng): return EncodedVector(len(x), {"values": to_array(x + CHANCE.normal())})
    def decompress(self, encoded): return to_tensor(encoded.arrays["values"]) * 1
"""
    told = "encoded one vector in two ways" if what == "compression" else "gives something else when it is asked again"
    program += definition(what, BY_CHANCE[what])
    assert f"the {what} 'parts:mine' {told}" in refused(tmp_path, what, program)
    given = {kind for kind, contract in CONTRACTS.items() if {"streams", "seed"} & set(contract.context)}
    assert given - {"task"} <= set(BY_CHANCE)


def test_a_graph_that_is_drawn_anew_now_and_then_is_asked_for_its_later_blocks(tmp_path: Path) -> None:
    program = """
import numpy as np
from netdfl.extend import Graph, Topology
from netdfl.topology.static import ring

CHANCE = np.random.default_rng(3)


def mine(num_nodes, streams, /):
    first = ring(num_nodes, streams).graph(0)

    def draw(block):
        nodes = CHANCE.permutation(num_nodes)
        return Graph.undirected(num_nodes, [(nodes[at - 1], nodes[at]) for at in range(num_nodes)]) if block else first

    return Topology(num_nodes, draw, directed=False, redraw_every=5)
"""
    file = written(tmp_path, "topology", program)
    load(file, ["rounds=5"])
    with pytest.raises(ScenarioError, match="gives something else when it is asked again"):
        load(file, ["rounds=20", "nodes=20"])


@pytest.mark.parametrize(
    ("algorithm", "graph", "share", "said"),
    [
        (
            "dfedavg",
            "ring",
            -0.5,
            "has negative ones and an eigenvalue of modulus 3: with each exchange nodes move apart",
        ),
        ("sgp", "ring", -0.5, "has negative ones, and the push-sum weights of sgp have to stay positive"),
        ("dfedavg", "ring", 0.6, "has negative ones and an eigenvalue of modulus 1.4"),
        ("dfedavg", "full", 0.4, ""),
    ],
)
def test_negative_weights_are_taken_unless_nodes_move_apart(
    tmp_path: Path, algorithm: str, graph: str, share: float, said: str
) -> None:
    """With a weight a for each link four nodes have the eigenvalue 1 - 4 a."""
    program = f"""
import numpy as np
from netdfl.extend import MixingMatrix


def mine(graph, /):
    return MixingMatrix(graph, np.full(graph.num_edges, {share}), 1.0 - {share} * graph.in_degrees)
"""
    file = written(tmp_path, "weights", program)
    file.write_text(file.read_text().replace("dfedavg", algorithm).replace("ring", graph))
    if said:
        with pytest.raises(ScenarioError) as caught:
            load(file)
        assert said in str(caught.value)
    else:
        load(file)


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("compression", "return Dithered()"),
        ("partition", "return np.array_split(np.random.permutation(len(labels)), num_clients)"),
        ("augmentation", "return x + torch.randn(1)"),
    ],
)
def test_a_part_that_draws_from_generators_that_a_run_seeds_is_taken(tmp_path: Path, what: str, body: str) -> None:
    program = """
import numpy as np
import torch
from netdfl.extend import Compressor, EncodedVector, to_array, to_tensor
class Dithered(Compressor):
    def variance(self, dim): return 9.0
    def compress(self, x, rng): return EncodedVector(len(x), {"values": to_array(x + torch.randn(1))})
    def decompress(self, encoded): return to_tensor(encoded.arrays["values"]) * 1
"""
    load(written(tmp_path, what, program + definition(what, body)))


MATRIX = """
import numpy as np
from netdfl.extend import MixingMatrix, static
"""
ROWS = "return MixingMatrix(graph, {}, 1 - np.bincount(graph.dst, np.full(graph.num_edges, 0.25)))"


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        ("[0.25] * graph.num_edges", "gave weights as list and ndarray"),
        ("np.full((graph.num_edges, 1), 0.25)", "gave weights as ndarray and ndarray"),
        ("np.full(graph.num_edges, np.nan)", "gave a weight that is NaN or infinite"),
        ("np.full(graph.num_edges, 0.25)", ""),
        ("np.full(graph.num_edges, 0.25) - 1e-12", ""),
    ],
)
def test_weights_are_flat_arrays_of_finite_numbers(tmp_path: Path, edges: str, said: str) -> None:
    program = MATRIX + definition("weights", ROWS.replace("{}", edges))
    if said:
        assert said in refused(tmp_path, "weights", program)
    else:
        load(written(tmp_path, "weights", program))


def test_a_partition_may_give_lists_and_minibatches_of_one(tmp_path: Path) -> None:
    body = "return [list(range(k, len(labels), num_clients)) for k in range(num_clients)]"
    file = written(tmp_path, "partition", definition("partition", body))
    file.write_text(file.read_text().replace("task: {", "task: {batch_size: 1, "))
    assert check_ready(load(file)) is not None


def test_a_compressor_may_decode_to_a_view(tmp_path: Path) -> None:
    program = """
from netdfl.extend import Compressor, EncodedVector, to_array, to_tensor
class Mean(Compressor):
    def variance(self, dim): return 1.0
    def compress(self, x, rng): return EncodedVector(len(x), {"mean": to_array(x.mean().reshape(1))})
    def decompress(self, encoded): return to_tensor(encoded.arrays["mean"]).clone().expand(encoded.dim)
"""
    load(written(tmp_path, "compression", program + definition("compression", "return Mean()")))


IN_ORDER = """
import numpy as np
from netdfl.extend import Graph, Topology
class Chosen:
    receivers_know = True
    def __init__(self, rng): self.rng = rng
    def select(self, node, round, candidates): return tuple(self.rng.permutation(candidates)[:2].tolist())
class Array(Chosen):
    def select(self, node, round, candidates): return np.array(candidates)
def moving(num_nodes, streams):
    rng = streams.rng("mine")
    def draw(block):
        order = rng.permutation(num_nodes).tolist()
        return Graph.undirected(num_nodes, [(order[at - 1], order[at]) for at in range(num_nodes)])
    return Topology(num_nodes, draw, directed=False, redraw_every=1)
def times(streams):
    rng = streams.rng("mine")
    return lambda node, round: int(rng.integers(10**9))
"""


@pytest.mark.parametrize(
    ("what", "body", "said"),
    [
        ("topology", "return moving(num_nodes, streams)", "in another order"),
        ("selection", "return Chosen(streams.rng('mine'))", "in another order"),
        ("selection", "return Array(streams.rng('mine'))", "selected nodes as an array of numpy"),
        ("compute time", "return times(streams)", "in another order"),
    ],
)
def test_a_part_that_depends_on_the_order_of_calls_is_refused(tmp_path: Path, what: str, body: str, said: str) -> None:
    """One generator for all calls gives each node another graph, though its seed is the scenario's."""
    file = written(tmp_path, what, IN_ORDER + definition(what, body))
    file.write_text(file.read_text().replace("nodes: 4", "nodes: 7").replace("rounds: 2", "rounds: 5"))
    with pytest.raises(ScenarioError) as caught:
        load(file)
    assert said in str(caught.value)


SPARSE = """
import torch
from netdfl.extend import Compressor, EncodedVector, to_array, to_tensor

KEPT = 1000


class Sparse(Compressor):
    def variance(self, dim):
        return VARIANCE

    def compress(self, x, rng):
        at = torch.topk(x.abs(), KEPT).indices
        return EncodedVector(len(x), {"values": to_array(x[at]), "at": to_array(at.int())})

    def decompress(self, encoded):
        x = torch.zeros(encoded.dim)
        x[to_tensor(encoded.arrays["at"]).long()] = to_tensor(encoded.arrays["values"])
        return x


def mine():
    return Sparse()
"""


def test_a_compressor_for_the_size_and_type_of_the_model_is_taken_with_its_true_variance(tmp_path: Path) -> None:
    """It can't encode few numbers, nor float64. What it says that it loses decides the step size of mixing."""
    model = "topology: ring\ntask: {dataset: digits, model: {name: mlp, hidden: [64]}}"
    file = written(tmp_path, "compression", SPARSE.replace("VARIANCE", "1 - KEPT / dim"))
    file.write_text(file.read_text().replace("topology: ring", model))
    load(file)
    (tmp_path / "parts.py").write_text(SPARSE.replace("VARIANCE", "0"))
    told = "lost 0.5 of a vector's squared length, and says that its variance is 0"
    with pytest.raises(ScenarioError, match=told):
        load(file)


@pytest.mark.parametrize("at", ["range(share)", "rng.permutation(len(x))[:share]"])
@pytest.mark.parametrize("variance", [0.5, 0.35])
def test_a_variance_below_what_is_lost_is_refused_and_the_true_one_taken(
    at: str, variance: float, tmp_path: Path
) -> None:
    """Half of the numbers are sent. Where chance says which, the mean of a few draws may lie above the variance."""
    body = SPARSE.replace("KEPT = 1000", "").replace("VARIANCE", str(variance))
    body = body.replace("at = torch.topk(x.abs(), KEPT).indices", f"share = len(x) // 2; at = torch.tensor({at})")
    file = written(tmp_path, "compression", body)
    if variance == 0.5:
        load(file)
    else:
        with pytest.raises(ScenarioError, match=r"says that its variance is 0\.35"):
            load(file)
