"""The choice of model messages whose digests receivers record for a comparison.

Different digests of one message reveal a node that sends each neighbor another model.
"""

from __future__ import annotations

from typing import NamedTuple

from netdfl.scenario.build import delivers_damage
from netdfl.scenario.model.schema import Scenario
from netdfl.topology.network import Network
from netdfl.topology.weights import auto, column

MOST_ROUNDS = 8
MOST_SENDERS = 64
"""The most senders whose messages are compared in one round; in a larger fleet, each round compares other senders."""


class ModelComparison(NamedTuple):
    """The choice of model messages whose digests are compared between the receivers of one sender.

    Attributes:
        rounds: the rounds whose messages are compared.
        every: in each of these rounds, one in this number of senders has its messages compared.
    """

    rounds: frozenset[int]
    every: int


NO_COMPARISON = ModelComparison(frozenset(), 1)


def comparison_of(scenario: Scenario, same_to_all: bool) -> ModelComparison:
    """Return which model messages are compared between the receivers of one sender.

    There are none unless each node sends the same to all neighbors (`same_to_all`), and none where links deliver
    damaged messages, as damage makes them differ, too.
    """
    if not same_to_all or delivers_damage(scenario):
        return NO_COMPARISON
    return ModelComparison(_rounds(scenario), -(-scenario.num_nodes // MOST_SENDERS))


def shares_equally(scenario: Scenario, network: Network) -> bool:
    """Return whether each node gives all receivers equal mixing weights in the rounds whose messages are compared."""
    weights = getattr(network.weights, "func", network.weights)
    if weights is column:
        return True
    return weights is auto and not any(network.graph(round).is_symmetric for round in _rounds(scenario))


def _rounds(scenario: Scenario) -> frozenset[int]:
    return frozenset(range(0, scenario.rounds, -(-scenario.rounds // MOST_ROUNDS)))
