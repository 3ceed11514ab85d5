"""How a node that lives again without its state joins the others, and what is lost with it."""

from __future__ import annotations

from netdfl.core.types import NodeId
from netdfl.host.blueprint import Blueprint
from netdfl.node.runtime import Node
from netdfl.node.state_transfer import Joining
from netdfl.scenario.build import is_push


def joining(blueprint: Blueprint, node: NodeId, round: int, weight: int) -> Joining:
    """How `node` joins in `round` or later: it asks those to whom links work both ways, the next one first."""
    num, scenario, mutual = blueprint.network.num_nodes, blueprint.scenario, blueprint.mutual
    others = range(num) if mutual is None else mutual.get(node, ())
    peers = sorted((each for each in others if each != node), key=lambda each: (each - node) % num)
    return Joining(round=round, peers=tuple(peers), weight=weight if is_push(scenario) else None)


def held_weight(blueprint: Blueprint, node: Node) -> dict[str, float]:
    """What a crash's event says of the push-sum weight that is the node's alone; nothing where that means nothing."""
    scenario, weight = blueprint.scenario, node.held_weight
    if weight is None or not is_push(scenario) or scenario.delivery.kind == "running_sums":
        return {}
    return {"weight": weight}
