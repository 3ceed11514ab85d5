"""Which scheme carries compressed messages: what `auto` means on a graph, what is refused, what is warned of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from netdfl.core.errors import Problem
from netdfl.scenario.build import build_topology
from netdfl.scenario.document import Document
from netdfl.scenario.schema import Scenario
from netdfl.topology.base import Topology
from netdfl.topology.network import Network

GOSSIP = ("choco", "deepsqueeze", "unsafe")
PUSH = ("edge", "push_sum")
SERVER = ("plain", "ef14", "ef21")
_OWN = {"choco_sgd": "choco", "delicoco": "choco", "qdfedavgm": "choco", "deepsqueeze": "deepsqueeze"}
_WHOLE = {"dispfl": "dispfl sends sparse vectors already", "slowmo": "slowmo needs the exact average"}
_UNIONS = 256
_MOST = 0.5


def scheme_of(scenario: Scenario, topology: Topology | None = None) -> str:
    """The scheme that is written, or that `auto` stands for. Raises ValueError where the graph can't be drawn."""
    compression: Any = scenario.compression
    algorithm = scenario.algorithm
    if compression.scheme != "auto":
        return str(compression.scheme)
    if scenario.has_server:
        return "plain"
    if is_push(scenario):
        return "edge"
    if algorithm.kind in _OWN:
        return _OWN[algorithm.kind]
    return "choco" if is_static(scenario, topology or build_topology(scenario)) else "deepsqueeze"


def is_push(scenario: Scenario) -> bool:
    """Whether the algorithm sends shares of mass."""
    return "column" in getattr(scenario.algorithm.entry, "needs", ())


def is_static(scenario: Scenario, topology: Topology) -> bool:
    """Whether every node has the same neighbors in every round."""
    return not topology.time_varying and scenario.topology.selection.kind == "all"


def compression_fits(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """The scheme suits the algorithm and the graph."""
    compression: Any = scenario.compression
    if compression is None:
        return
    path = ("compression", "scheme") if compression.scheme != "auto" else ("compression", "kind")
    found = _unsuitable(scenario) or _on_wrong_graph(scenario)
    if found:
        yield document.problem(path, found[0], "", found[1])
    if scenario.wait.on_not_finite != "refuse":
        what = f"{scenario.wait.on_not_finite} mixes NaN and infinity, which no compressor can encode"
        yield document.problem(("wait", "on_not_finite"), what, "", "remove it, or remove compression")
    if compression.gamma != "auto" and scenario.has_server:
        what = f"gamma is the step size of compressed gossip, and {scenario.algorithm.kind} has a server"
        yield document.problem(("compression", "gamma"), what, "", "remove it; server_lr is the server's step size")


def _unsuitable(scenario: Scenario) -> tuple[str, str] | None:
    """Why the algorithm can't be compressed so, and what to do."""
    name, entry = scenario.algorithm.kind, scenario.algorithm.entry
    compression: Any = scenario.compression
    scheme = compression.scheme
    if getattr(entry, "family", "gossip") not in ("gossip", "server"):
        return f"{name} exchanges whole models, one pair at a time or late", "remove compression"
    if name in _WHOLE:
        return _WHOLE[name], "remove compression"
    if name == "lian_dpsgd":
        return "lian_dpsgd averages whole models", "use choco_sgd, its compressed counterpart"
    known = SERVER if scenario.has_server else PUSH if is_push(scenario) else GOSSIP
    if scheme == "plain" and not scenario.has_server:
        what = "plain would compress the bare model, whose error is as large as the model and never averages out"
        return what, f"use auto, or {' or '.join(known[:2])}" + (", or unsafe to see it" if known is GOSSIP else "")
    if scheme != "auto" and scheme not in known:
        kind = "a server" if scenario.has_server else "push-sum" if known is PUSH else "gossip"
        return f"scheme {scheme} is not for {name}, which is {kind}'s", f"use auto, {', '.join(known)}"
    if scheme != "auto" and name in _OWN and scheme != _OWN[name]:
        return f"{name} is {_OWN[name]} by its definition", "leave out scheme, or use dfedavg"
    return None


def _on_wrong_graph(scenario: Scenario) -> tuple[str, str] | None:
    """Why the scheme can't be on this graph; nothing where the graph itself can't be drawn."""
    try:
        topology = build_topology(scenario)
    except (ValueError, OSError):
        return None
    scheme, graph = scheme_of(scenario, topology), scenario.topology.kind
    literal = scenario.algorithm.params.get("form") == "literal"
    if scheme == "choco" and scenario.wait.on_missing == "renormalise":
        return "choco can't scale up what came: its references would no longer agree", "use on_missing: self or last"
    if scheme not in ("choco", "push_sum") or literal or is_static(scenario, topology):
        return None
    what = f"{scheme} keeps a copy of each neighbor's reference, and on {graph} neighbors change"
    if scheme == "push_sum":
        return what, "use scheme: edge, or a static graph"
    return what, "use deepsqueeze (as algorithm, or as scheme of dfedavg), or a static graph such as exponential"


def warnings(scenario: Scenario) -> Iterator[str]:
    """What theory or a trial says goes wrong, a sentence each."""
    compression: Any = scenario.compression
    if compression is None:
        return
    scheme, params = scheme_of(scenario), compression.params
    if scheme == "unsafe":
        yield "compression scheme unsafe sends bare models: nodes will not agree, and the mean drifts"
    lost = _noise(compression.kind, params)
    if lost >= 1 and scheme in ("choco", "deepsqueeze", "edge", "push_sum"):
        yield (
            f"{compression.kind} as set here adds {lost:.2g} times the energy of what it compresses, with which "
            f"{scheme} diverges; use scaled: true, norm: max, more bits or smaller buckets"
        )
    sparse = compression.kind in ("top_k", "random_k", "chain", "low_rank")
    if sparse and scheme in ("choco", "edge", "push_sum") and compression.gamma != "auto" and compression.gamma > _MOST:
        yield f"{compression.kind} with gamma {compression.gamma} may diverge under {scheme}; gamma: auto chooses less"


def _noise(kind: str, params: dict[str, Any]) -> float:
    """E|x - C(x)|^2 / |x|^2 of an unbiased compressor, for x drawn from N(0, 1); 0 for a contraction."""
    if kind == "random_k" and params["unbiased"]:
        return float(1.0 / max(params["fraction"], 1e-9) - 1.0)
    if kind not in ("qsgd", "chain") or params["scaled"] or params["bits"] == 1:
        return 0.0
    levels: int = params.get("levels") or 2 ** (params["bits"] - 1) - 1
    x: Any = np.abs(np.random.default_rng(0).standard_normal(params["bucket"] or 65536))
    unit = (x.max() if params["norm"] == "max" else np.sqrt((x * x).sum())) / levels
    rest = x / unit % 1.0
    return float((rest * (1.0 - rest)).sum() * unit**2 / (x * x).sum())


def vectors_kept(scenario: Scenario, network: Network) -> int:
    """Vectors of the model's size that the busiest node keeps for compression, at the run's end at most."""
    scheme = scheme_of(scenario, network.topology)
    if scheme in SERVER:
        return {"plain": 0, "ef14": 2, "ef21": scenario.nodes + 1}[scheme]
    if scheme == "deepsqueeze":
        return 2
    if scheme == "unsafe":
        return 0
    sends, hears = _used(network, 1 if is_static(scenario, network.topology) else min(scenario.rounds, _UNIONS))
    if scheme == "edge":
        return max(len(sends[i]) + len(hears[i]) for i in range(network.num_nodes)) + 1
    return max(len(some) for some in hears) + 2


def _used(network: Network, rounds: int) -> tuple[list[set[int]], list[set[int]]]:
    """Whom each node sends to, and hears, in the first `rounds` rounds."""
    sends: list[set[int]] = [set() for _ in range(network.num_nodes)]
    hears: list[set[int]] = [set() for _ in range(network.num_nodes)]
    for round in range(rounds):
        graph = network.graph(round)
        for node in range(network.num_nodes):
            sends[node].update(graph.out_neighbors(node))
            hears[node].update(graph.in_neighbors(node))
    return sends, hears
