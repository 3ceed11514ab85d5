"""The names of the metrics that runs record, each with a sentence: of the fleet, of each node, and of a whole run."""

from __future__ import annotations

from collections.abc import Mapping

from netdfl.core.fates import MEANINGS, FateClass

OF_FLEET: Mapping[str, str] = {
    "consensus_distance": "How far the nodes' models are from their average.",
    "error": "The distance of the average model from the known answer of a toy problem.",
    "mean_local_accuracy": "The mean of the nodes' own test accuracies.",
    "mean_personal_accuracy": "The mean of the nodes' accuracies on held-out data of their own.",
    "test_accuracy": "By round the accuracy of the nodes' own models if they are evaluated, else of the average model.",
    "test_loss": "The loss on the test data, of the models that test_accuracy is of.",
    "weight_sum": "The sum of push-sum weights over the number of nodes: 1 while no weight is lost.",
}
"""Metrics of the fleet that a run records when models are evaluated."""
OF_NODES: Mapping[str, str] = {
    "bytes_sent": "The bytes that a node sent.",
    "gamma": "The step of compressed gossip towards the neighbors.",
    "limbo": "How many messages of a node nobody had acknowledged.",
    "limbo_weight": "The push-sum weight in them.",
    "personal_accuracy": "A node's accuracy on held-out data of its own.",
    "reference_gaps": "How often a compressed message did not continue the last one that came.",
    "reference_lost_w": "The push-sum weight of shares that came and could never be decoded.",
    "reference_resync_bytes": "The bytes of references that were sent in full.",
    "reference_resyncs": "How many references were sent in full to repair a copy.",
    "round_s": "The length of a node's round in seconds.",
    "staleness": "The mean age in rounds of what a node mixed.",
    "train_cpu_s": "The CPU time of a node's training in seconds.",
    "train_loss": "The loss of a node's training.",
    "train_s": "The time of a node's training in seconds.",
    "wait_s": "The time for which a node waited in seconds.",
    "weight": "A node's push-sum weight.",
}
"""Metrics that each node records each round."""
_LOST = {
    name.value: f"The share of {name.value} messages ({MEANINGS[name]})."
    for name in FateClass
    if name is not FateClass.DELIVERED
}
OF_RUN: Mapping[str, str] = {
    "bytes_sent": "The bytes that all nodes sent.",
    "collapsed": "The share of runs whose models collapsed.",
    "deadlock": "The share of runs with a deadlock.",
    "died": "The share of runs in which a node died unplanned.",
    "diverged": "The share of runs whose models diverged.",
    "duration_s": "The length of the run in real seconds.",
    "largest_weight": "The largest push-sum weight of any node in any round.",
    "missing": "The mean number of neighbors whose message a node lacked in a round.",
    "not_delivered": "The share of messages that were not delivered, for all reasons.",
    "not_passed": "The share of runs whose verdict was neither pass nor done.",
    "round_s_median": "The median length of rounds in seconds.",
    "round_s_p95": "The length in seconds below which 95 % of rounds stay.",
    "rounds": "The mean number of rounds that nodes finished.",
    "rounds_per_s": "Finished rounds per second of the fleet's time.",
    "smallest_weight": "The smallest push-sum weight of any node in any round.",
    "stalled": "The share of runs in which nodes still waited at the end.",
    "timeouts": "The share of waits that a deadline ended.",
    "train_loss": "The mean training loss at the end.",
    "virtual_duration_s": "The length of a simulated run in virtual seconds.",
    **_LOST,
}
"""Metrics of a whole run, beside the last values of the fleet's metrics."""


def figure_rows() -> list[dict[str, object]]:
    """Return, for each metric that a study can plot: its name, the quantities for the x-axis (`by`), and a sentence."""
    found: list[dict[str, object]] = []
    for name in sorted({*OF_FLEET, *OF_NODES, *OF_RUN}):
        by = ["round"] * (name in OF_FLEET or name in OF_NODES)
        by += ["bytes_sent"] * (name in OF_FLEET) + ["varied"] * (name in OF_FLEET or name in OF_RUN)
        help = " ".join(each[name] for each in (OF_FLEET, OF_NODES, OF_RUN) if name in each)
        found.append({"name": name, "by": by, "help": help})
    return found
