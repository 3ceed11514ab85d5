"""The choice of the time that local rounds take in a simulated run: a model, or measurements."""

from __future__ import annotations

from typing import Any

from netdfl.algorithms.families import first_state
from netdfl.core.types import NodeId
from netdfl.host.blueprint import Blueprint
from netdfl.record.directory import RunDirectory
from netdfl.scenario.model.contracts import misfit
from netdfl.scenario.model.parts import Part
from netdfl.worlds.simulated.compute import (
    COMPUTE_FILE,
    ComputeTime,
    MeasurementRequest,
    as_others,
    record,
    replay,
    slow_nodes,
    slowed,
    time_ns,
)


def compute_time(blueprint: Blueprint, directory: RunDirectory) -> ComputeTime:
    """Return the duration of local rounds by the scenario's model, which may ask for measurements on this machine."""
    world: Any = blueprint.scenario.world
    streams = blueprint.streams
    model: ComputeTime | MeasurementRequest = world.compute.build(streams)
    if isinstance(model, MeasurementRequest):
        path = directory.path / COMPUTE_FILE
        if not path.exists():  # else this run is resumed
            record(path, [measure(blueprint, node) for node in blueprint.node_ids])
        model = replay(path, model.scale)
    if type(world.compute).own:
        model = checked(model, world.compute)
    for node in blueprint.node_ids:
        model(node, 0)  # so that a missing time raises its error before the run
    slow = slow_nodes(streams, blueprint.scenario.nodes, **world.stragglers.model_dump()) if world.stragglers else {}
    found = slowed(model, slow) if slow else model
    clients = [node for node in blueprint.node_ids if node != blueprint.network.server]
    return as_others(found, world.as_others, clients) if world.as_others else found


def checked(model: ComputeTime, part: Part) -> ComputeTime:
    """Return the times of `model`, of a user's `part`; a call raises OwnPartError for what is no int of 0 or more."""
    function = type(part).function
    assert function is not None

    def take(node: NodeId, round: int) -> int:
        took: object = model(node, round)
        if isinstance(took, int) and took >= 0:
            return took
        did = f"gave {repr(took)[:80]} as nanoseconds of node {node} in round {round}: return an int of 0 or more"
        raise misfit(part.own, part.kind, did, function)

    return take


def measure(blueprint: Blueprint, node: NodeId) -> int:
    """Measure the time of one local round of `node` on this machine, in nanoseconds."""
    if node == blueprint.network.server:
        return 0
    algorithm, task = blueprint.algorithm, blueprint.problem.task(node, "cpu")
    view = blueprint.view(node, 0, frozenset())
    state = first_state(task.initial(), algorithm, view)
    return time_ns(lambda: state.train(algorithm, task.data(0), view))
