"""What computes for the nodes of a process, on the process's share of the machine's cores."""

from __future__ import annotations

from typing import Any

from netdfl.fleet.build import Blueprint
from netdfl.node.worker import BatchWorker, ThreadWorker
from netdfl.training.service import Batching, Service, cores


def make_worker(blueprint: Blueprint, hosted: int) -> ThreadWorker:
    """The worker of a process that hosts as many nodes: a thread for each while there are cores, or batches."""
    scenario: Any = blueprint.scenario
    num_processes = -(-len(blueprint.node_ids) // getattr(scenario.world, "nodes_per_process", 1))
    threads = max(1, min(hosted, cores() // num_processes))
    batching: Batching = getattr(scenario.task, "batching", "exact")
    if hosted == 1 or batching == "exact":
        return ThreadWorker(threads)
    return BatchWorker(Service(batching, threads).compute)
