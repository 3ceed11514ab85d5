"""A node that lost its state: whom it may ask for a model when it lives again, and what was lost with it."""

from __future__ import annotations

from netdfl.core.types import NodeId
from netdfl.fleet.build import Blueprint
from netdfl.node.joining import Joining
from netdfl.node.runtime import Node
from netdfl.scenario.compression import is_push
from netdfl.scenario.survival import used_links


def joining(blueprint: Blueprint, node: NodeId, round: int, weight: int) -> Joining:
    """How `node` joins in `round` or later: it asks those to whom links work both ways, the next one first."""
    num, scenario = blueprint.network.num_nodes, blueprint.scenario
    links = used_links(scenario, blueprint.network.topology)
    others = [(node + step) % num for step in range(1, num)]
    peers = [each for each in others if links is None or {(node, each), (each, node)} <= links]
    return Joining(round=round, peers=tuple(peers), weight=weight if is_push(scenario) else None)


def held_weight(blueprint: Blueprint, node: Node) -> dict[str, float]:
    """What a crash's event says of the push-sum weight that is the node's alone; nothing where that means nothing."""
    scenario, weight = blueprint.scenario, node.held_weight
    if weight is None or not is_push(scenario) or scenario.delivery.kind == "running_sums":
        return {}
    return {"weight": weight}
