"""A ring that stalls at each loss: three to five causes, in many guises."""

from __future__ import annotations

from typing import Any

from netdfl.explore.explore import Discovery

RING: dict[str, Any] = {
    "schema": "netdfl/1",
    "name": "ring",
    "nodes": 6,
    "rounds": 10,
    "world": {"kind": "simulated", "compute": "10ms"},
    "task": {"kind": "consensus", "dim": 2},
    "algorithm": "dpsgd",
    "topology": "ring",
    "delivery": "plain",
    "wait": {"for": "all", "deadline": "none"},
    "links": {"default": {"latency": "5ms", "loss": 0.0002}},
}


KINDS = {
    "lost": "lost",
    "receiver_down": "receiver",
    "receiver_restarted": "receiver",
    "returned_past": "returned",
    "past": "never sent",
    "finished": "never sent",
    "taken_for_gone": "never sent",
}


def kinds_of(found: Discovery) -> set[str]:
    """The kinds of its variants: of one that has several reasons, of the gravest."""
    order = list(dict.fromkeys(KINDS.values()))
    grave = ("returned", *(kind for kind in order if kind != "returned"))
    return {
        min((KINDS[part.partition(":")[0]] for part in each.split("+")), key=grave.index) for each in found.variants
    }
