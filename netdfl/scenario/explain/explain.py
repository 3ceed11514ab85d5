"""The numbers that `netdfl explain` shows of a fleet before it runs: graph, weights, traffic, data and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from netdfl.core.bounds import MemoryBounds
from netdfl.core.rng import Streams
from netdfl.core.types import Array, Payload
from netdfl.links.schedule.events import CompiledEvent
from netdfl.scenario.build import bounds_of, build_network, compile_schedule, is_push, scheme_of
from netdfl.scenario.checks.compression import warnings
from netdfl.scenario.explain.core_links import CoreLinkFacts, core_links
from netdfl.scenario.explain.link_rules import link_rules
from netdfl.scenario.explain.memory import counts_all, vectors_kept
from netdfl.scenario.model.network import CompressionPart
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import Training
from netdfl.scenario.model_size import load_data, num_parameters
from netdfl.topology.network import Network
from netdfl.topology.spectrum import psi, spectral_gap, stochasticity
from netdfl.transport.wire import frame_size

if TYPE_CHECKING:
    from netdfl.compression.base import EncodedVector

_ROUNDS = 8
_SPECTRUM_NODES = 1500


@dataclass(frozen=True)
class NumberRange:
    """The minimum, mean and maximum of some numbers."""

    min: int
    mean: float
    max: int

    @classmethod
    def of(cls, numbers: NDArray[np.integer]) -> NumberRange:
        """Compute the minimum, mean and maximum of `numbers`."""
        return cls(int(numbers.min()), round(float(numbers.mean()), 3), int(numbers.max()))


@dataclass(frozen=True)
class GraphFacts:
    """The graph of round 0, and whether and how often it changes.

    Attributes:
        kind: the name of the topology.
        directed: whether links work in one direction.
        redraw_every: the number of rounds after which the graph is drawn anew; 0: never.
        chosen_anew: whether nodes select their neighbors anew in every round of a fixed graph.
        receivers_know: whether a node knows in advance which nodes will send to it.
        nodes: the number of nodes.
        edges: the number of edges; in a symmetric graph both directions count once.
        links: the number of one-way links.
        out_degree: the number of receivers of a node.
        in_degree: the number of senders to a node.
        out_neighbors: the receivers of each node.
    """

    kind: str
    directed: bool
    redraw_every: int
    chosen_anew: bool
    receivers_know: bool
    nodes: int
    edges: int
    links: int
    out_degree: NumberRange
    in_degree: NumberRange
    out_neighbors: Mapping[int, Sequence[int]]


@dataclass(frozen=True)
class WeightFacts:
    """Properties of the mixing matrix of round 0.

    Attributes:
        kind: the name of the rule for weights.
        stochastic: whether rows, columns or both sum to 1.
        symmetric: whether the matrix is symmetric.
        spectral_gap: 1 less the second largest absolute value of an eigenvalue.
        psi: the largest factor by which the disagreement of the nodes can change in a round; 1: no contraction.
        psi_per_round: for graphs that change, the contraction per round over the product of a few rounds.
    """

    kind: str
    stochastic: str
    symmetric: bool | None = None
    spectral_gap: float | None = None
    psi: float | None = None
    psi_per_round: float | None = None


@dataclass(frozen=True)
class TaskFacts:
    """The task, and the size and type of the vector that nodes exchange."""

    kind: str
    parameters: int
    dtype: str
    dataset: str | None = None
    partition: str | None = None
    model: str | None = None
    batch_size: int | None = None

    @property
    def nbytes(self) -> int:
        """The size of a model in bytes."""
        return self.parameters * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class TrafficFacts:
    """The traffic without losses: bytes per message, per round and in the whole run.

    With a server, `broadcast_bytes` is the size of its message to a client. Only messages with models are counted;
    `beside` names the kinds of other messages, which a run counts, too.
    """

    message_bytes: int
    broadcast_bytes: int | None
    messages_per_round: float
    bytes_per_round: float
    bytes_in_all: float
    messages_in_all: float
    beside: Sequence[str]


@dataclass(frozen=True)
class CompressionFacts:
    """The compression of messages, and the memory that a node needs for it.

    Attributes:
        kind: the name of the compressor.
        params: its parameters.
        scheme: the scheme by which messages are compressed.
        gamma: the step size of the mixing, or `auto`.
        vectors_kept: the most vectors of the model's size that a node keeps for compression, in the graphs that were
            counted.
        counts_all: whether no node can keep more vectors than these.
        bytes_kept: the size of these vectors in bytes.
        warnings: sentences on settings with which mixing diverges or nodes do not agree.
    """

    kind: str
    params: Mapping[str, object]
    scheme: str
    gamma: float | str
    vectors_kept: int
    counts_all: bool
    bytes_kept: int
    warnings: Sequence[str]


@dataclass(frozen=True)
class LabelTable:
    """The number of training samples of each class at each client: `counts[client][class]`."""

    dataset: str
    classes: int
    counts: Sequence[Sequence[int]]


@dataclass(frozen=True)
class Explanation:
    """All contents of the output of `netdfl explain`."""

    scenario: Scenario
    graph: GraphFacts
    weights: WeightFacts
    task: TaskFacts
    traffic: TrafficFacts
    compression: CompressionFacts | None
    links: Sequence[Mapping[str, object]]
    data: LabelTable | None
    events: Sequence[CompiledEvent]
    bounds: MemoryBounds
    notes: Sequence[str] = ()
    core_links: Sequence[CoreLinkFacts] = ()

    def to_json(self) -> dict[str, object]:
        """Return the explanation as plain values for JSON."""
        scenario, traits = self.scenario, self.scenario.algorithm.traits
        row = {"family": traits.family, "source": traits.source, "needs": sorted(traits.needs)}
        return {
            "name": scenario.name,
            "seed": scenario.seed,
            "nodes": scenario.nodes,
            "server": scenario.has_server,
            "rounds": scenario.rounds,
            "world": scenario.world.kind,
            "algorithm": {"name": scenario.algorithm.kind, **row, "params": _plain(scenario.algorithm.params)},
            "graph": asdict(self.graph),
            "weights": _said(self.weights),
            "task": _said(self.task),
            "wait": scenario.wait.model_dump(mode="json", by_alias=True),
            "delivery": scenario.delivery.model_dump(mode="json", by_alias=True),
            "traffic": asdict(self.traffic),
            "bounds": self.bounds.to_json(),
            "record": scenario.record.model_dump(),
            "compression": self.compression and asdict(self.compression),
            "links": self.links,
            "core_links": [asdict(link) for link in self.core_links],
            "data": self.data and asdict(self.data),
            "notes": list(self.notes),
            "events": [event.to_json() for event in self.events],
        }


def _plain(params: Mapping[str, object]) -> dict[str, object]:
    return {
        name: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        for name, value in params.items()
    }


def _said(facts: WeightFacts | TaskFacts) -> dict[str, object]:
    return {name: value for name, value in asdict(facts).items() if value is not None}


def explain(scenario: Scenario) -> Explanation:
    """Compute the explanation of a scenario.

    Raises:
        InputError: The data is not there.
        ValueError: The data can't be divided among clients as the scenario says, or the model does not fit it.
    """
    network = build_network(scenario)
    rounds = range(min(_ROUNDS, scenario.rounds) if network.varies else 1)
    task = _task(scenario)
    traffic = _traffic(scenario, network, rounds, task)
    labels, notes = _labels(scenario)
    return Explanation(
        scenario,
        _graph(scenario, network),
        _weights(scenario, network, rounds),
        task,
        traffic,
        _compression(scenario, network, task),
        link_rules(scenario, network),
        labels,
        compile_schedule(scenario),
        bounds_of(scenario, network, task.parameters),
        notes,
        core_links(scenario, network, traffic.message_bytes),
    )


def _graph(scenario: Scenario, network: Network) -> GraphFacts:
    first = network.graph(0)
    return GraphFacts(
        kind=scenario.topology.kind,
        directed=not first.is_symmetric,
        redraw_every=network.topology.redraw_every,
        chosen_anew=network.varies and not network.topology.time_varying,
        receivers_know=network.receivers_know,
        nodes=network.num_nodes,
        edges=first.num_edges // 2 if first.is_symmetric else first.num_edges,
        links=first.num_edges,
        out_degree=NumberRange.of(first.out_degrees),
        in_degree=NumberRange.of(first.in_degrees),
        out_neighbors={node: list(first.out_neighbors(node)) for node in range(first.num_nodes)},
    )


def _weights(scenario: Scenario, network: Network, rounds: range) -> WeightFacts:
    name = scenario.topology.weights.kind
    if scenario.has_server or network.num_nodes > _SPECTRUM_NODES:
        return WeightFacts(name, "server" if scenario.has_server else "not computed")
    matrix = network.matrix(0)
    found, per_round = stochasticity(matrix), None
    if len(rounds) > 1 and found.kind == "doubly":
        product = np.linalg.multi_dot([network.matrix(round) for round in reversed(rounds)])
        per_round = psi(product) ** (1 / len(rounds))
    return WeightFacts(name, found.kind, found.symmetric, spectral_gap(matrix), psi(matrix), per_round)


def _task(scenario: Scenario) -> TaskFacts:
    task = scenario.task
    if isinstance(task, Training):
        data, size = task.split, num_parameters(task)
        return TaskFacts("train", size, "float32", data.kind, data.partition.kind, task.settings.kind, task.batch_size)
    if task.kind == "sized":
        return TaskFacts(task.kind, task.params["bytes"] // 8, "float64")
    return TaskFacts(task.kind, task.params.get("dim") or 0, task.params.get("dtype", "float32"))


def _traffic(scenario: Scenario, network: Network, rounds: range, task: TaskFacts) -> TrafficFacts:
    """Compute the traffic from the sizes of the large vectors in messages; masks and single numbers are left out."""
    steps = scenario.algorithm.params.get("gossip_steps", 1)
    messages = steps * sum(network.graph(round).num_edges for round in rounds) / len(rounds)
    compression, traits = scenario.compression, scenario.algorithm.traits
    whole = {"x": Array(task.dtype, (task.parameters,), memoryview(bytes(task.nbytes)))}
    code = whole if compression is None else _compressed(compression, task.parameters)
    beside = code if compression is not None and compression.extras == "compressed" else whole
    sent = _frame_bytes(scenario, code, *[beside] * traits.adds_up)
    in_all, others = messages * scenario.rounds, _beside(scenario, network)
    if not scenario.has_server:
        return TrafficFacts(sent, None, messages, messages * sent, in_all * sent, in_all, others)
    broadcast = _frame_bytes(scenario, whole, *[whole] * (traits.adds_up or traits.tells))
    nbytes = messages * (sent + broadcast) / 2  # who is sent to answers
    return TrafficFacts(sent, broadcast, messages, nbytes, nbytes * scenario.rounds, in_all, others)


def _beside(scenario: Scenario, network: Network) -> list[str]:
    """Return the kinds of messages without models that a run may send, in words."""
    wait, found = scenario.wait, []
    if scenario.delivery.kind == "acknowledged":
        found.append("acknowledgements, and what is sent again")
    if scenario.algorithm.traits.family == "bilateral":
        found.append("requests and ends of rounds")
    by_default = wait.need == "all" and not isinstance(wait.deadline, int)
    if not network.receivers_know and (by_default if wait.announce is None else wait.announce):
        found.append("notices to those that get no model")
    if wait.deadline == "auto":
        found.append("questions to who is late, and their answers")
    if scenario.failure_detector.kind == "heartbeat":
        found.append("heartbeats")
    return found


def _frame_bytes(scenario: Scenario, *vectors: Mapping[str, Array]) -> int:
    """Return the size in bytes of a message frame that carries all arrays of `vectors`."""
    arrays = {f"{place}{name}": array for place, vector in enumerate(vectors) for name, array in vector.items()}
    payload = Payload(arrays, {"w": 1.0} if is_push(scenario) else {})
    return frame_size(payload)


def _compressed(compression: CompressionPart, dim: int) -> Mapping[str, Array]:
    import torch

    rng = np.random.default_rng(0)
    vector = torch.from_numpy(rng.standard_normal(dim).astype(np.float32))
    encoded: EncodedVector = compression.build().compress(vector, rng)
    return encoded.arrays


def _compression(scenario: Scenario, network: Network, task: TaskFacts) -> CompressionFacts | None:
    compression = scenario.compression
    if compression is None:
        return None
    kept = vectors_kept(scenario, network)
    return CompressionFacts(
        kind=compression.kind,
        params=compression.params,
        scheme=scheme_of(scenario, network.topology),
        gamma=compression.gamma,
        vectors_kept=kept,
        counts_all=counts_all(scenario, network, kept),
        bytes_kept=kept * task.nbytes,
        warnings=list(warnings(scenario)),
    )


def _labels(scenario: Scenario) -> tuple[LabelTable | None, list[str]]:
    """Return the label counts of each client if targets are classes, and notices about the data."""
    from netdfl.training.data.partitions import label_counts
    from netdfl.training.data.sharing import share_out

    task = scenario.task
    if not isinstance(task, Training):
        return None, []
    streams = Streams(scenario.seed)
    data = load_data(task, streams)
    parts, notes = (data.parts, []) if data.parts else share_out(data, task.split.partition, scenario.nodes, streams)
    said = [*data.notes, *notes]
    if data.labels is None:
        return None, said
    counts = label_counts(data.labels, parts, data.num_classes).tolist()
    return LabelTable(task.split.kind, data.num_classes, counts), said
