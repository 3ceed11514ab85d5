"""Trials of components that a user wrote, such as an algorithm or a graph: each is built and used before a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from netdfl.core.errors import OwnPartError
from netdfl.core.rng import ALONE, Streams, kept_streams
from netdfl.core.types import Array, Kind, Message
from netdfl.links.rules.base import Transit
from netdfl.scenario.build import build_topology
from netdfl.scenario.checks.finding import CheckFinding
from netdfl.scenario.checks.trial_of_algorithm import try_algorithm
from netdfl.scenario.checks.trials import require, require_again, seeded_by, tried, using
from netdfl.scenario.model.parts import Part, own_parts
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model_size import num_numbers

if TYPE_CHECKING:
    from torch import Tensor

    from netdfl.compression.base import Compressor, EncodedVector

_DIM, _VECTORS, _MANY_VECTORS, _ROUNDS, _MESSAGES = 64, 8, 64, 3, 32
"""The size of a trial: how many numbers a vector has, how many encodings, rounds and messages are tried."""
_DRAWS = (0.5, 1e-6, 1e-3, 1 - 1e-3, 1 - 1e-6)
"""At which numbers of (0, 1) the quantiles of a latency are tried: what a run of a million messages draws."""
_ERRORS = 4
"""By how many standard errors chance may raise a trial's mean."""
_ROUNDED = 1e-3
"""The share of a vector's squared length that a compressor may lose by rounding, in addition to its stated bound."""


def without_data(scenario: Scenario) -> Iterator[CheckFinding]:
    """Yield the mistakes of components that a user wrote (such as an algorithm) that show without the task's data."""
    if any(part.own in _TRIALS for _, part in own_parts(scenario)):
        with ALONE, kept_streams():
            yield from list(tried(scenario, _TRIALS, scenario))


def _topology(part: Part, scenario: Scenario) -> None:
    topology, again = (part.build(scenario.num_nodes, Streams(scenario.seed)) for _ in range(2))
    made = topology.num_nodes
    require(made == scenario.num_nodes, part, f"made a graph of {made} nodes and was given {scenario.num_nodes}")
    with using(part, "when its graph was drawn"):
        blocks = {number * max(1, topology.redraw_every) for number in range(_ROUNDS)}
        rounds = sorted(round for round in {*range(_ROUNDS), *blocks} if round < scenario.rounds)
        drawn = {round: topology.graph(round).edges for round in rounds}
        require_again(drawn == {round: again.graph(round).edges for round in reversed(rounds)}, part)


def _weights(part: Part, scenario: Scenario) -> None:
    try:
        graph = build_topology(scenario).graph(0)
    except (ValueError, OSError):
        return
    matrix, again = part.build(graph), part.build(graph)
    arrays = (matrix.on_edges, matrix.on_self)
    kinds = " and ".join(type(array).__name__ for array in arrays)
    are_arrays = all(isinstance(array, np.ndarray) and array.ndim == 1 for array in arrays)
    require(are_arrays, part, f"gave weights as {kinds}", "give flat arrays of numpy, np.asarray(..., float)")
    sizes, wanted = (len(matrix.on_edges), len(matrix.on_self)), (graph.num_edges, graph.num_nodes)
    require(sizes == wanted, part, f"gave weights of (edges, nodes) {sizes} to a graph of {wanted}")
    finite = all(np.isfinite(array).all() for array in arrays)
    require(bool(finite), part, "gave a weight that is NaN or infinite", "give finite weights")
    same = np.array_equal(matrix.on_edges, again.on_edges) and np.array_equal(matrix.on_self, again.on_self)
    require_again(same, part, "give its generator a seed")


def _selection(part: Part, scenario: Scenario) -> None:
    candidates = tuple(range(1, scenario.num_nodes))
    selection, again = (part.build(scenario.num_nodes, Streams(scenario.seed)) for _ in range(2))
    with using(part, "when it selected"):
        chosen = selection.select(0, 0, candidates)
        is_array = isinstance(chosen, np.ndarray)
        require(not is_array, part, "selected nodes as an array of numpy", "return a tuple of node numbers")
        rounds = range(min(_ROUNDS, scenario.rounds))
        found = {round: list(selection.select(0, round, candidates)) for round in rounds}
        require_again(found == {round: list(again.select(0, round, candidates)) for round in reversed(rounds)}, part)
        require(set(chosen) <= set(candidates), part, f"selected {chosen} among {candidates}")


def _compression(part: Part, scenario: Scenario) -> None:
    try:
        _compress(part, _DIM)
    except OwnPartError:
        dim = num_numbers(scenario)
        if dim is None:
            raise
        _compress(part, dim)  # it may be made for this model


def _compress(part: Part, dim: int) -> None:
    import torch

    compressor = part.build()
    vector = torch.linspace(-1, 1, dim)
    with using(part, f"with a vector of {dim} numbers"):
        variance, kept = compressor.variance(dim), compressor.contraction(dim)
        did = f"has variance {variance:g} and contraction {kept:g}"
        require(variance >= 0 and 0 <= kept <= 1, part, did, "variance is 0 or more, contraction 0 to 1")
        encoded = _encoded(part, compressor, vector)
        sent = _contents(encoded)
        decoded = compressor.decompress(encoded)
        require(decoded.shape == vector.shape, part, f"made {tuple(decoded.shape)} of a vector of {dim} numbers")
        require(_contents(encoded) == sent, part, "wrote to what it decoded", "clone it: other receivers read it, too")
        with suppress(RuntimeError):  # an expanded view has no memory for each number
            decoded += 1
        require(_contents(encoded) == sent, part, "decoded to the memory of the message", "clone what is decoded")
        lost, error = _mean_loss(compressor, vector, variance + _ROUNDED)
        did = f"lost {lost:.2g} of a vector's squared length, and says that its variance is {variance:g}"
        holds = lost - min(error, variance) <= variance + _ROUNDED
        require(holds, part, did, "variance is a bound of what is lost on average")
    with using(part, "when its parts were put into a message"):
        _carried(compressor, vector)


def _mean_loss(compressor: Compressor, vector: Tensor, bound: float) -> tuple[float, float]:
    """Return a compressor's mean loss, and by how much chance may have raised it: 0 if every draw loses the same.

    More encodings are drawn where the mean of a few exceeds `bound`.
    """
    found = [_lost(compressor, vector, seed) for seed in range(_VECTORS)]
    if np.mean(found) > bound:
        found += [_lost(compressor, vector, seed) for seed in range(_VECTORS, _MANY_VECTORS)]
    return float(np.mean(found)), float(_ERRORS * np.std(found, ddof=1) / np.sqrt(len(found)))


def _lost(compressor: Compressor, vector: Tensor, seed: int) -> float:
    """Return |x - C(x)|^2 / |x|^2 for the vector x and one draw of the compressor C."""
    with seeded_by(seed):
        said = compressor.decompress(compressor.compress(vector, np.random.default_rng(seed)))
    return float((said - vector).square().sum() / vector.square().sum())


def _encoded(part: Part, compressor: Compressor, vector: Tensor) -> EncodedVector:
    """Return `vector` as a user's `part` encodes it. Raises OwnPartError where the encoding breaks its contract.

    One seed must give one encoding, which neither changes the vector nor shares its memory.
    """
    given = vector.clone()
    with seeded_by():
        encoded = compressor.compress(given, np.random.default_rng(0))
    for name, array in encoded.arrays.items():
        did = f"encoded {name!r} as a {type(array).__name__}"
        require(isinstance(array, Array), part, did, "make an Array of a tensor by to_array of netdfl.extend")
    require(bool((given == vector).all()), part, "wrote to the vector that it was given", "clone it first")
    sent = _contents(encoded)
    with seeded_by():
        again = _contents(compressor.compress(vector, np.random.default_rng(0)))
    require(sent == again, part, "encoded one vector in two ways with the same seed", "take chance from rng alone")
    given += 1
    require(_contents(encoded) == sent, part, "encoded a vector without copying it", "clone what is encoded")
    return encoded


def _contents(encoded: EncodedVector) -> dict[str, bytes]:
    return {name: bytes(array.data) for name, array in encoded.arrays.items()}


def _carried(compressor: Compressor, vector: Tensor) -> None:
    """Check that a user's compressor makes vectors that can be sent: put one into a message, and read it again."""
    from netdfl.mixing.payloads import pack_encoded, unpack_encoded
    from netdfl.transport import wire

    payload = pack_encoded(compressor.compress(vector, np.random.default_rng(0)))
    frame = wire.encode(Message(0, 1, Kind.DATA, 0, 0, 0, 0, payload), bytes(8), 0)
    unpack_encoded(wire.decode(frame, wire.Limits())[1], compressor, vector)


def _loss(part: Part, scenario: Scenario) -> None:
    model, again = part.build(0), part.build(0)
    with using(part, "with a message"):
        for step in range(_MESSAGES):
            message = Transit(0, 1, Kind.DATA, 0, step, 0, 1000)
            require_again(bool(model.lost(message)) == bool(again.lost(message)), part, "draw by the seed it is given")


def _latency(part: Part, scenario: Scenario) -> None:
    delay = part.build()
    with using(part, "when a delay was drawn"):
        for u in _DRAWS if delay.quantile is not None else ():
            int(delay.quantile(u))


def _compute(part: Part, scenario: Scenario) -> None:
    time, again = part.build(Streams(scenario.seed)), part.build(Streams(scenario.seed))
    with using(part, "when it was asked for a time"):
        took = time(0, 0)
        nodes = range(scenario.num_nodes)
        require_again([again(node, 0) for node in reversed(nodes)][-1] == took, part)
        gave = f"gave {took!r} as nanoseconds of node 0 in round 0"
        require(isinstance(took, int) and took >= 0, part, gave, "return an int of 0 or more, as by int(...)")


def _task(part: Part, scenario: Scenario) -> None:
    part.build(0, Streams(scenario.seed))  # one that is given no context ignores it


def _plain(part: Part, scenario: Scenario) -> None:
    part.build()


_TRIALS: Mapping[str, Callable[[Part, Scenario], CheckFinding | None]] = {
    "topology": _topology,
    "weights": _weights,
    "selection": _selection,
    "algorithm": try_algorithm,
    "compression": _compression,
    "task": _task,
    "loss": _loss,
    "latency": _latency,
    "compute time": _compute,
    **dict.fromkeys(("rate", "uplink", "downlink", "duplicate", "corrupt", "reorder"), _plain),
}
