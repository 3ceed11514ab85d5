"""A fleet before it runs: its graph, weights, traffic, data and events, as plain values."""

from __future__ import annotations

from typing import Any

import numpy as np

from netdfl.core.rng import Streams
from netdfl.core.types import Array, Kind, Message, Payload
from netdfl.scenario.build import build_network, compile_schedule
from netdfl.scenario.checks.compression import warnings
from netdfl.scenario.explain.link_rules import link_rules
from netdfl.scenario.explain.memory import counts_all, vectors_kept
from netdfl.scenario.model.fields import Choice
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import Train
from netdfl.scenario.model_size import load_dataset, num_parameters
from netdfl.scenario.schemes import is_push, scheme_of
from netdfl.topology.network import Network
from netdfl.topology.spectrum import psi, spectral_gap, stochasticity
from netdfl.transport.wire import frame_size

_ROUNDS = 8
_SPECTRUM_NODES = 1500


def explain(scenario: Scenario) -> dict[str, Any]:
    """Everything that `netdfl explain` shows, as JSON takes it.

    Raises:
        InputError: The data is not there.
        ValueError: The data can't be shared out as the scenario says, or the model does not fit it.
    """
    network = build_network(scenario)
    return {
        "name": scenario.name,
        "seed": scenario.seed,
        "nodes": scenario.nodes,
        "server": scenario.has_server,
        "rounds": scenario.rounds,
        "world": scenario.world.kind,
        "algorithm": {"name": scenario.algorithm.kind, **_algorithm(scenario)},
        "graph": _graph(scenario, network),
        "weights": _weights(scenario, network),
        "task": _task(scenario),
        "traffic": _traffic(scenario, network),
        "compression": _compression(scenario, network),
        "links": link_rules(scenario, network),
        "data": label_table(scenario),
        "events": [event.to_json() for event in compile_schedule(scenario)],
    }


def _algorithm(scenario: Scenario) -> dict[str, Any]:
    traits, params = scenario.algorithm.traits, scenario.algorithm.params
    return {"family": traits.family, "source": traits.source, "needs": sorted(traits.needs), "params": params}


def _rounds(scenario: Scenario, network: Network) -> range:
    return range(min(_ROUNDS, scenario.rounds) if network.varies else 1)


def _graph(scenario: Scenario, network: Network) -> dict[str, Any]:
    first = network.graph(0)
    return {
        "kind": scenario.topology.kind,
        "directed": not first.is_symmetric,
        "redraw_every": network.topology.redraw_every,
        "chosen_anew": network.varies and not network.topology.time_varying,
        "receivers_know": network.receivers_know,
        "nodes": network.num_nodes,
        "edges": first.num_edges // 2 if first.is_symmetric else first.num_edges,
        "links": first.num_edges,
        "out_degree": _spread(first.out_degrees),
        "in_degree": _spread(first.in_degrees),
        "out_neighbors": {node: list(first.out_neighbors(node)) for node in range(first.num_nodes)},
    }


def _spread(numbers: Any) -> dict[str, float]:
    return {"min": int(numbers.min()), "mean": round(float(numbers.mean()), 3), "max": int(numbers.max())}


def _weights(scenario: Scenario, network: Network) -> dict[str, Any]:
    """The matrix of round 0; for graphs that change, the product over a few rounds says how fast they agree."""
    if scenario.has_server or network.num_nodes > _SPECTRUM_NODES:
        return {
            "kind": scenario.topology.weights.kind,
            "stochastic": "server" if scenario.has_server else "not computed",
        }
    matrix = network.matrix(0)
    kind = stochasticity(matrix)
    found: dict[str, Any] = {
        "kind": scenario.topology.weights.kind,
        "stochastic": kind.kind,
        "symmetric": kind.symmetric,
        "spectral_gap": spectral_gap(matrix),
        "psi": psi(matrix),
    }
    rounds = _rounds(scenario, network)
    if len(rounds) > 1 and kind.kind == "doubly":
        product = np.linalg.multi_dot([network.matrix(round) for round in reversed(rounds)])
        found["psi_per_round"] = psi(product) ** (1 / len(rounds))
    return found


def _task(scenario: Scenario) -> dict[str, Any]:
    task = scenario.task
    if not isinstance(task, Train):
        params = getattr(task, "params", {})
        return {"kind": task.kind, "parameters": params.get("dim"), "dtype": params.get("dtype", "float32")}
    return {
        "kind": "train",
        "dataset": task.dataset.kind,
        "partition": task.dataset.partition.kind,
        "model": task.model.kind,
        "parameters": num_parameters(task),
        "dtype": "float32",
        "batch_size": task.batch_size,
    }


def _traffic(scenario: Scenario, network: Network) -> dict[str, Any]:
    edges = [network.graph(round).num_edges for round in _rounds(scenario, network)]
    messages = sum(edges) / len(edges)
    nbytes = message_bytes(scenario)
    return {
        "message_bytes": nbytes,
        "messages_per_round": messages,
        "bytes_per_round": messages * nbytes,
        "bytes_in_all": messages * nbytes * scenario.rounds,
    }


def message_bytes(scenario: Scenario) -> int:
    """The frame of one model, as the wire carries it; the loss of what a method adds beside the model is small."""
    task = _task(scenario)
    dim, dtype = int(task["parameters"] or 0), str(task["dtype"])
    arrays = {"x": Array(dtype, (dim,), memoryview(np.zeros(dim, dtype).tobytes()))}
    if scenario.compression is not None:
        arrays = _compressed(scenario.compression, dim)
    payload = Payload(arrays, {"w": 1.0} if is_push(scenario) else {})
    return frame_size(Message(0, 1, Kind.DATA, 0, 0, 0, 0, payload))


def _compression(scenario: Scenario, network: Network) -> dict[str, Any] | None:
    """How messages are compressed, and what a node keeps for it; None where they are not."""
    compression: Any = scenario.compression
    if compression is None:
        return None
    kept, task = vectors_kept(scenario, network), _task(scenario)
    return {
        "kind": compression.kind,
        "params": compression.params,
        "scheme": scheme_of(scenario, network.topology),
        "gamma": compression.gamma,
        "vectors_kept": kept,
        "counts_all": counts_all(scenario, network, kept),
        "bytes_kept": kept * int(task["parameters"] or 0) * np.dtype(str(task["dtype"])).itemsize,
        "warnings": list(warnings(scenario)),
    }


def _compressed(compression: Choice, dim: int) -> dict[str, Array]:
    import torch

    rng = np.random.default_rng(0)
    vector = torch.from_numpy(rng.standard_normal(dim).astype(np.float32))
    encoded: Any = compression.build().compress(vector, rng)  # type: ignore[attr-defined]
    return dict(encoded.arrays)


def label_table(scenario: Scenario) -> dict[str, Any] | None:
    """Training samples of each class at each client; None where the task has no data."""
    from netdfl.training.data.partitions import label_counts

    task = scenario.task
    if not isinstance(task, Train):
        return None
    data = load_dataset(task)
    parts = task.dataset.partition.build(data.train_y, scenario.nodes, Streams(scenario.seed))
    counts = label_counts(data.train_y, parts, data.num_classes)
    return {"dataset": task.dataset.kind, "classes": data.num_classes, "counts": counts.tolist()}
