"""The trials of components that a user wrote (such as an algorithm): each is built and used once before a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
from pydantic import BaseModel

from netdfl.algorithms.exchange import Exchange
from netdfl.core.errors import DatasetError, NotFetchedError, OwnPartError
from netdfl.core.rng import ALONE, Streams, kept_streams
from netdfl.core.types import Array, Kind, Message
from netdfl.core.whose import defined_at
from netdfl.links.rules.base import Transit
from netdfl.scenario.build import build_network, build_topology
from netdfl.scenario.checks.finding import CheckFinding
from netdfl.scenario.checks.graph import data_are_pictures
from netdfl.scenario.model.contracts import broken, misfit
from netdfl.scenario.model.fields import Function
from netdfl.scenario.model.parts import Part
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import Train, Training
from netdfl.scenario.model_size import load_data

if TYPE_CHECKING:
    from torch import Tensor

    from netdfl.algorithms.base import Algorithm
    from netdfl.compression.base import Compressor, EncodedVector
    from netdfl.training.data.own import SharedData
    from netdfl.training.flat import FlatModel

T = TypeVar("T")
WithData: TypeAlias = "tuple[Scenario, SharedData]"
_DIM = 64
_ROUNDS = 3


def own_parts(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Part]]:
    """Yield every component below `value` that a user wrote, such as a model, with the path of the key naming it."""
    if isinstance(value, Part) and type(value).own:
        yield (*path, type(value).key), value
    children: Mapping[str | int, object] = value if isinstance(value, Mapping) else {}
    if isinstance(value, list):
        children = dict(enumerate(value))
    if isinstance(value, BaseModel):
        children = {field.alias or name: getattr(value, name) for name, field in type(value).model_fields.items()}
    for key, child in children.items():
        yield from own_parts(child, (*path, key))


def without_data(scenario: Scenario) -> Iterator[CheckFinding]:
    """Yield the mistakes of components that a user wrote (such as an algorithm) that show without the task's data."""
    if any(part.own in _TRIALS for _, part in own_parts(scenario)):
        with ALONE, kept_streams():
            yield from list(_tried(scenario, _TRIALS, scenario))


def with_data(scenario: Scenario) -> Iterator[CheckFinding]:
    """Yield the mistakes of a user's own datasets, partitions, models and augmentations; none if data is missing."""
    task = scenario.task
    if not isinstance(task, Training) or not any(part.own in _DATA_TRIALS for _, part in own_parts(task)):
        return
    import torch

    from netdfl.training.drawing import seeded

    with seeded(Streams(scenario.seed).integer("data"), torch.device("cpu")):
        found = list(_with_data(scenario, task))
    yield from found


def _with_data(scenario: Scenario, task: Training) -> Iterator[CheckFinding]:
    from netdfl.training.data.examples import shape_of

    place = ("task", "dataset", "name") if isinstance(task, Train) else ("task", "kind")
    try:
        data = load_data(task, Streams(scenario.seed))
    except OwnPartError as exc:
        yield CheckFinding(place, exc.what, exc.remedy)
        return
    except NotFetchedError:
        return  # the run says so
    except DatasetError as exc:
        if any(part.own in ("dataset", "task") for _, part in own_parts(task)):
            yield CheckFinding(place, f"the {'dataset' if isinstance(task, Train) else 'task'} {exc}")
        return
    try:
        yield from _tried(scenario, _DATA_TRIALS, (scenario, data))
    except DatasetError as exc:  # a model is made for them, and they are none to learn from
        yield CheckFinding(place, str(exc))
    yield from data_are_pictures(scenario, shape_of(data.first()[0]))


def _tried(
    scenario: Scenario, trials: Mapping[str, Callable[[Part, T], CheckFinding | None]], context: T
) -> Iterator[CheckFinding]:
    for path, part in own_parts(scenario):
        try:
            if part.own in trials and (noticed := trials[part.own](part, context)) is not None:
                yield noticed._replace(path=path)
        except OwnPartError as exc:
            yield CheckFinding(path, exc.what, exc.remedy)


@contextmanager
def _using(part: Part, doing: str) -> Iterator[None]:
    """Report an exception in the context, while `doing` something, as a fault of what the user's `part` returned."""
    try:
        yield
    except OwnPartError:
        raise
    except Exception as exc:
        raise broken(part.own, part.kind, exc, _function(part), f" {doing}") from exc


def _require(holds: bool, part: Part, did: str, remedy: str = "") -> None:
    if not holds:
        raise misfit(part.own, part.kind, did, _function(part), remedy)


def _function(part: Part) -> Function:
    function = type(part).function
    assert function is not None
    return function


def _topology(part: Part, scenario: Scenario) -> None:
    topology = part.build(scenario.num_nodes, Streams(scenario.seed))
    made = topology.num_nodes
    _require(made == scenario.num_nodes, part, f"made a graph of {made} nodes and was given {scenario.num_nodes}")
    with _using(part, "when its graph was drawn"):
        for round in range(min(_ROUNDS, scenario.rounds)):
            topology.graph(round)


def _weights(part: Part, scenario: Scenario) -> None:
    try:
        graph = build_topology(scenario).graph(0)
    except (ValueError, OSError):
        return
    matrix = part.build(graph)
    sizes = (len(matrix.on_edges), len(matrix.on_self))
    wanted = (graph.num_edges, graph.num_nodes)
    _require(sizes == wanted, part, f"gave weights of (edges, nodes) {sizes} to a graph of {wanted}")


def _selection(part: Part, scenario: Scenario) -> None:
    candidates = tuple(range(1, scenario.num_nodes))
    selection = part.build(scenario.num_nodes, Streams(scenario.seed))
    with _using(part, "when it selected"):
        chosen = selection.select(0, 0, candidates)
        _require(set(chosen) <= set(candidates), part, f"selected {chosen} among {candidates}")


def _algorithm(part: Part, scenario: Scenario) -> None:
    from netdfl.algorithms.own import lacking

    algorithm = part.build(Exchange(common_start=isinstance(scenario.task, Training), streams=Streams(scenario.seed)))
    family = scenario.algorithm.traits.family
    did = f"made an algorithm of the family {algorithm.family!r}, and is listed under {family!r}"
    _require(algorithm.family == family, part, did, f"name an Entry with family={algorithm.family!r}")
    for what, lacks in lacking(family, algorithm.start, algorithm.local, algorithm.mixing):
        _require(False, part, f"made an algorithm whose {what} lacks {lacks}", "docs/extend.md has what each part has")
    _trains(algorithm, scenario)


def _trains(algorithm: Algorithm, scenario: Scenario) -> None:
    """Check the result of one round of local training by a user's own algorithm on a toy problem.

    An algorithm that fails on this problem for another reason may need another problem, and passes.
    """
    from netdfl.algorithms.families import first_state
    from netdfl.training.catalog import TOYS

    try:
        task, view = TOYS["quadratic"](0, Streams(0), dim=_DIM), build_network(scenario).view(0, 0)
    except Exception:  # what is wrong with the graph or its weights is told at their own places
        return
    try:
        state = first_state(task.initial(), algorithm, view)
        state.train(algorithm, task.data(0), view)
    except OwnPartError:
        raise
    except Exception:
        return


def _compression(part: Part, scenario: Scenario) -> None:
    import torch

    compressor = part.build()
    vector = torch.linspace(-1, 1, _DIM)
    with _using(part, f"with a vector of {_DIM} numbers"):
        variance, kept = compressor.variance(_DIM), compressor.contraction(_DIM)
        did = f"has variance {variance:g} and contraction {kept:g}"
        _require(variance >= 0 and 0 <= kept <= 1, part, did, "variance is 0 or more, contraction 0 to 1")
        encoded = _encoded(part, compressor, vector)
        sent = _contents(encoded)
        decoded = compressor.decompress(encoded)
        _require(decoded.shape == vector.shape, part, f"made {tuple(decoded.shape)} of a vector of {_DIM} numbers")
        _require(_contents(encoded) == sent, part, "wrote to what it decoded", "clone it: other receivers read it, too")
        decoded += 1
        _require(_contents(encoded) == sent, part, "decoded to the memory of the message", "clone what is decoded")
    with _using(part, "when its parts were put into a message"):
        _carried(compressor, vector)


def _encoded(part: Part, compressor: Compressor, vector: Tensor) -> EncodedVector:
    """Return a vector encoded by a user's `part`, after checks that nothing else may change it, and it nothing else."""
    given = vector.clone()
    encoded = compressor.compress(given, np.random.default_rng(0))
    for name, array in encoded.arrays.items():
        did = f"encoded {name!r} as a {type(array).__name__}"
        _require(isinstance(array, Array), part, did, "make an Array of a tensor by to_array of netdfl.extend")
    _require(bool((given == vector).all()), part, "wrote to the vector that it was given", "clone it first")
    sent = _contents(encoded)
    again = _contents(compressor.compress(vector, np.random.default_rng(0)))
    _require(sent == again, part, "encoded one vector in two ways with the same seed", "take chance from rng alone")
    given += 1
    _require(_contents(encoded) == sent, part, "encoded a vector without copying it", "clone what is encoded")
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
    model = part.build(0)
    with _using(part, "with a message"):
        model.lost(Transit(0, 1, Kind.DATA, 0, 0, 0, 1000))


def _latency(part: Part, scenario: Scenario) -> None:
    delay = part.build()
    with _using(part, "when a delay was drawn"):
        delay.constant_ns if delay.quantile is None else int(delay.quantile(0.5))


def _compute(part: Part, scenario: Scenario) -> None:
    time = part.build(Streams(scenario.seed))
    with _using(part, "when it was asked for a time"):
        took = time(0, 0)
        _require(isinstance(took, int) and took >= 0, part, f"gave {took!r} as nanoseconds of node 0 in round 0")


def _task(part: Part, scenario: Scenario) -> None:
    part.build(0, Streams(scenario.seed))  # one that is given no context ignores it


def _plain(part: Part, scenario: Scenario) -> None:
    part.build()


def _partition(part: Part, context: WithData) -> None:
    scenario, data = context
    labels = np.zeros(len(data.train), np.int64) if data.labels is None else data.labels.copy()
    parts = part.build(labels, scenario.nodes, Streams(scenario.seed))
    _require(len(parts) == scenario.nodes, part, f"made {len(parts)} parts for {scenario.nodes} clients")
    for client, indices in enumerate(map(np.asarray, parts)):
        whole = indices.ndim == 1 and len(indices) > 0 and np.issubdtype(indices.dtype, np.integer)
        _require(whole, part, f"gave client {client} no list of sample numbers")
        inside = 0 <= indices.min() and indices.max() < len(labels)
        _require(bool(inside), part, f"gave client {client} a sample that is not among the {len(labels)}")


_JUDGES = ("task", "metric")
"""The kinds of user-written components that compute metrics of a model."""


def _model(part: Part, context: WithData) -> CheckFinding | None:
    """Check that a model can be built from the data, and that the user's `part` accepts the model's outputs.

    `part` is a model, a task, a loss or a metric. Returns a notice, or None.
    """
    from netdfl.training.classification import outcome
    from netdfl.training.data.examples import Samples
    from netdfl.training.tasks.recipe import made, recipe_of

    scenario, data = context
    task = scenario.task
    assert isinstance(task, Training)
    try:
        model, metrics = made(recipe_of(task), data, task.settings, 0)
    except OwnPartError:
        raise
    except ValueError as exc:
        place = f" ({where})" if (where := defined_at(inspect.unwrap(_function(part)))) else ""
        raise OwnPartError(f"{part.own} {part.kind!r}: {exc}{place}") from exc
    if part.own in ("model", "task") and (notes := _tried_steps(scenario, data, model)):
        return CheckFinding((), f"{part.own} {part.kind!r}: {notes[0]}", notice=True)
    if part.own not in _JUDGES and (part.own != "model" or not model.uses_cross_entropy):
        return None
    found = outcome(model, model.flat(), Samples(*data.first()))
    if part.own == "model":
        return _gives_probabilities(part, found.outputs)
    if metrics is not None:
        with _using(part, "when a model was judged"):
            figures = metrics(found.outputs, found.targets)
            names = {name: float(value) for name, value in figures.items()}
            _require(all(map(str.isidentifier, names)), part, f"named figures {', '.join(names)}", "use plain words")
    return None


def _tried_steps(scenario: Scenario, data: SharedData, model: FlatModel) -> list[str]:
    """Return notices from a trial of the algorithm's training steps; empty if the algorithm can't be built."""
    import torch

    from netdfl.training.trial import EXAMPLES, fit_ways

    assert isinstance(scenario.task, Training)
    exchange = Exchange(common_start=True, num_rounds=scenario.rounds, streams=Streams(scenario.seed))
    try:
        local = scenario.algorithm.build(exchange).local
    except (OwnPartError, ValueError, TypeError):
        return []
    x, y = data.train.take(torch.arange(min(EXAMPLES, len(data.train))))
    return fit_ways(model, local, x, y, scenario.task.batch_size, rows=scenario.task.batching == "auto")


def _gives_probabilities(part: Part, said: Tensor) -> CheckFinding | None:
    """Return a notice if the model's outputs `said` are probabilities already, because the model ends in a softmax.

    Cross-entropy applies a softmax itself, and with two the gradients nearly vanish.
    """
    import torch

    if said.shape[1] < 2 or said.min() < 0 or not torch.allclose(said.sum(1), torch.ones(len(said), dtype=said.dtype)):
        return None
    what = f"model {part.kind!r} gives probabilities, and the loss, cross-entropy, takes a softmax of them once more"
    return CheckFinding((), what, "leave out the model's last softmax, or it hardly learns", notice=True)


def _augmentation(part: Part, context: WithData) -> None:
    _, data = context
    x, _ = data.first()
    out = part.build(x, np.random.default_rng(0))
    _require(out.shape == x.shape, part, f"made {tuple(out.shape)} of a batch of shape {tuple(x.shape)}")


_TRIALS: Mapping[str, Callable[[Part, Scenario], CheckFinding | None]] = {
    "topology": _topology,
    "weights": _weights,
    "selection": _selection,
    "algorithm": _algorithm,
    "compression": _compression,
    "task": _task,
    "loss": _loss,
    "latency": _latency,
    "compute time": _compute,
    **dict.fromkeys(("rate", "uplink", "downlink", "duplicate", "corrupt", "reorder"), _plain),
}
_DATA_TRIALS: Mapping[str, Callable[[Part, WithData], CheckFinding | None]] = {
    "dataset": lambda part, context: None,
    "partition": _partition,
    "model": _model,
    "task": _model,
    "training loss": _model,
    "metric": _model,
    "augmentation": _augmentation,
}
