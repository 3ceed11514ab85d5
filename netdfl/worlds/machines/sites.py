"""Which machine gets which nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from netdfl.core.errors import MachineError
from netdfl.core.types import NodeId
from netdfl.scenario.model.world import Site
from netdfl.worlds.machines.machine import Machine, Offer


def shared_out(offers: Mapping[str, Offer], num_nodes: int, sites: Sequence[Site] = ()) -> list[Machine]:
    """The machines that get nodes, with them. Raises MachineError."""
    shares = shares_of(offers, num_nodes, sites)
    return [Machine(name, offers[name].address, nodes) for name, nodes in shares.items()]


def shares_of(offers: Mapping[str, Offer], num_nodes: int, sites: Sequence[Site] = ()) -> dict[str, list[NodeId]]:
    """The nodes of each machine that gets any.

    Those of a site are shared by its machines, all others by the machines that no site names, or by all if there are no
    such. Each gets a run of the numbers, the first ones a node more where they don't divide. Raises MachineError.
    """
    if not offers:
        raise MachineError("no machine to place nodes on")
    shares: dict[str, list[NodeId]] = {name: [] for name in offers}
    placed: set[NodeId] = set()
    for site in sites:
        _share(shares, _machines_of(site, offers), [node for node in site.nodes if node not in placed])
        placed.update(site.nodes)
    if beyond := sorted(node for node in placed if node >= num_nodes):
        raise MachineError(f"world.sites: node {beyond[0]} is none of this fleet, which has 0 to {num_nodes - 1}")
    free = [name for name in offers if not shares[name]] or list(offers)
    _share(shares, free, [node for node in range(num_nodes) if node not in placed])
    return {name: sorted(nodes) for name, nodes in shares.items() if nodes}


def _machines_of(site: Site, offers: Mapping[str, Offer]) -> list[str]:
    found = [name for name, each in offers.items() if site.machines in (name, each.address, *each.tags)]
    if not found:
        known = "; ".join(f"{name}: {', '.join([each.address, *each.tags])}" for name, each in offers.items())
        raise MachineError(f"world.sites: no machine is, or has, {site.machines!r}; there are {known}")
    return found


def _share(shares: Mapping[str, list[NodeId]], machines: Sequence[str], nodes: Sequence[NodeId]) -> None:
    count = min(len(machines), len(nodes))
    starts = [-(-number * len(nodes) // count) for number in range(count + 1)] if count else []
    for name, (begin, end) in zip(machines, pairwise(starts), strict=False):
        shares[name].extend(nodes[begin:end])
