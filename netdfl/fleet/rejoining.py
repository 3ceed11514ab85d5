"""How a node that lives again joins the others: with its state, or, where that was lost, with a neighbor's model."""

from __future__ import annotations

from collections.abc import Iterable

from netdfl.core.types import NodeId
from netdfl.fleet.build import Blueprint
from netdfl.fleet.script import Return
from netdfl.node.runtime import Node
from netdfl.node.state_transfer import Joining
from netdfl.record.status import NodeStatus, Phase
from netdfl.scenario.build import used_links
from netdfl.scenario.checks.survival import catches_up
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.schemes import is_push


def joining(blueprint: Blueprint, node: NodeId, round: int, weight: int) -> Joining:
    """How `node` joins in `round` or later: it asks those to whom links work both ways, the next one first."""
    num, scenario = blueprint.network.num_nodes, blueprint.scenario
    links = used_links(scenario, blueprint.network.topology)
    others = [(node + step) % num for step in range(1, num)]
    peers = [each for each in others if links is None or {(node, each), (each, node)} <= links]
    return Joining(round=round, peers=tuple(peers), weight=weight if is_push(scenario) else None)


def caught_up(scenario: Scenario, back: Return, others: Iterable[NodeStatus]) -> int:
    """In which round a node that kept its state goes on, once it has made anew the one in which it crashed.

    That is the earliest in which any of `others` is, for somebody may need its message of that; 0: the next.
    """
    if not back.keep_state or back.replays or catches_up(scenario):
        return 0
    ends = {Phase.STARTING: 0, Phase.FINISHED: scenario.rounds}
    there = (Phase.STARTING, Phase.RUNNING, Phase.FINISHED)
    return min((ends.get(other.phase, other.round) for other in others if other.phase in there), default=0)


def held_weight(blueprint: Blueprint, node: Node) -> dict[str, float]:
    """What a crash's event says of the push-sum weight that is the node's alone; nothing where that means nothing."""
    scenario, weight = blueprint.scenario, node.held_weight
    if weight is None or not is_push(scenario) or scenario.delivery.kind == "running_sums":
        return {}
    return {"weight": weight}
