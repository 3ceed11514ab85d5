"""The checks of a scenario's compression: schemes for the algorithm and graph, settings that make mixing diverge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from netdfl.scenario.build import GOSSIP, PUSH, SERVER, build_topology, drawn, is_literal, is_push, is_static, scheme_of
from netdfl.scenario.checks.finding import CheckFinding
from netdfl.scenario.model.algorithm import algorithms
from netdfl.scenario.model.network import CompressionPart
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import Training
from netdfl.scenario.model_size import num_numbers

if TYPE_CHECKING:
    from netdfl.compression.base import Compressor

_MOST = 0.5
_REMEMBERING = ("choco", "deepsqueeze", "edge", "push_sum", "ef14", "ef21")
_ANY_SIZE = 1 << 24
_IF_UNKNOWN = 1 << 16


def compression_fits(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that the compression scheme suits the algorithm and the graph."""
    compression = scenario.compression
    if compression is None:
        return
    try:
        compression.build()
    except (ValueError, TypeError) as error:
        yield CheckFinding(("compression", "kind"), f"compression {compression.kind}: {error}")
        return
    path = ("compression", "scheme") if compression.scheme != "auto" else ("compression", "kind")
    if found := _unsuitable(scenario, compression.scheme) or _on_wrong_graph(scenario):
        yield CheckFinding(path, *found)
    if scenario.wait.on_not_finite != "refuse":
        what = f"{scenario.wait.on_not_finite} mixes NaN and infinity, which no compressor can encode"
        yield CheckFinding(("wait", "on_not_finite"), what, "remove it, or remove compression")
    name = scenario.algorithm.kind
    if compression.extras == "compressed" and not scenario.algorithm.traits.adds_up:
        those = ", ".join(other for other, entry in algorithms().items() if entry.adds_up)
        what = f"{name} reports no change that a server adds up, as {those} do"
        yield CheckFinding(("compression", "extras"), what, "remove it")
    if compression.gamma != "auto" and (without := _without_gamma(scenario, compression.scheme)):
        what = f"gamma is the step size of compressed gossip, and {without[0]}"
        yield CheckFinding(("compression", "gamma"), what, without[1])


def _without_gamma(scenario: Scenario, scheme: str) -> tuple[str, str] | None:
    """Return the reason why gamma, the mixing step size, has no effect here, and a remedy; None if it has one."""
    if scenario.has_server:
        return f"{scenario.algorithm.kind} has a server", "remove it; server_lr is the server's step size"
    if is_literal(scenario):
        return "form: literal averages differences as printed, without one", "remove it, or use form: reference"
    if scheme == "unsafe":
        return "scheme unsafe averages bare models, without one", "remove it, or use scheme: choco"
    return None


def _unsuitable(scenario: Scenario, scheme: str) -> tuple[str, str] | None:
    """Return the reason why the compression scheme does not suit the algorithm, and a remedy; None if it does."""
    name, traits = scenario.algorithm.kind, scenario.algorithm.traits
    if traits.family not in ("gossip", "server"):
        return f"{name} exchanges whole models, one pair at a time or late", "remove compression"
    if traits.sparse:
        return f"{name} sends sparse vectors already", "remove compression"
    if "average" in traits.needs:
        return f"{name} needs the exact average", "remove compression"
    if traits.counterpart:
        return f"{name} averages whole models", f"use {traits.counterpart}, its compressed counterpart"
    known = SERVER if scenario.has_server else PUSH if is_push(scenario) else GOSSIP
    if scheme == "plain" and not scenario.has_server:
        what = "plain would compress the bare model, whose error is as large as the model and never averages out"
        return what, f"use auto, or {' or '.join(known[:2])}" + (", or unsafe to see it" if known is GOSSIP else "")
    if scheme != "auto" and scheme not in known:
        kind = "a server" if scenario.has_server else "push-sum" if known is PUSH else "gossip"
        return f"scheme {scheme} is not for {name}, which is {kind}'s", f"use auto, {', '.join(known)}"
    if traits.scheme and scheme not in ("auto", traits.scheme):
        return f"{name} is {traits.scheme} by its definition", "leave out scheme, or use dfedavg"
    if scheme == "ef21" and scenario.algorithm.params.get("weighting") == "samples":
        what = "ef21 averages what all clients have said, and knows the examples only of those that report"
        return what, "use weighting: uniform, or scheme: plain or ef14"
    return None


def _on_wrong_graph(scenario: Scenario) -> tuple[str, str] | None:
    """Return the reason why the compression scheme can't run on the graph, and a remedy; None if it can.

    None also where the graph can't be drawn.
    """
    if (topology := drawn(build_topology, scenario)) is None:
        return None
    scheme, graph = scheme_of(scenario, topology), scenario.topology.kind
    if scheme == "choco" and scenario.wait.on_missing == "renormalise":
        return "choco can't scale up what came: its references would no longer agree", "use on_missing: self or last"
    if scheme not in ("choco", "push_sum") or is_literal(scenario) or is_static(scenario, topology):
        return None
    what = f"{scheme} keeps a copy of each neighbor's reference, and on {graph} neighbors change"
    if scheme == "push_sum":
        return what, "use scheme: edge, or a static graph"
    return what, "use deepsqueeze (as algorithm, or as scheme of dfedavg), or a static graph such as exponential"


def warnings(scenario: Scenario) -> Iterator[str]:
    """Yield a warning for each setting with which compressed mixing diverges or nodes do not agree."""
    compression = scenario.compression
    if compression is None:
        return
    scheme, gamma = scheme_of(scenario), compression.gamma
    if scheme == "unsafe":
        yield "compression scheme unsafe sends bare models: nodes will not agree, and the mean drifts"
    if scheme not in _REMEMBERING or is_literal(scenario):
        return
    lost, part = _lost(scenario, compression)
    if lost >= 1:
        damped = f", so gamma: auto moves references by {part:.2g} of what was said, and agrees slowly"
        yield (
            f"{compression.kind} as set here adds {lost:.2g} times the energy of what it compresses, with which "
            f"{scheme} diverges{damped if gamma == 'auto' else ''}; use {_less_noise(compression)}"
        )
    sparse = compression.kind in ("top_k", "random_k", "chain", "low_rank")
    if sparse and lost > 0 and scheme in ("choco", "edge", "push_sum") and gamma != "auto" and gamma > _MOST:
        yield f"{compression.kind} with gamma {gamma} may diverge under {scheme}; gamma: auto chooses less"


def _lost(scenario: Scenario, compression: CompressionPart) -> tuple[float, float]:
    """Return the compressor's relative error |x - C(x)|^2 / |x|^2, and the factor by which gamma `auto` scales C(x)."""
    from netdfl.mixing.compressed.step_size import ScaledCompressor, sample_size, trial

    compressor: Compressor = compression.build()
    enough = sample_size(compressor, _ANY_SIZE)
    dim = (
        num_numbers(scenario) or _IF_UNKNOWN
        if enough == _ANY_SIZE or not isinstance(scenario.task, Training)
        else enough
    )
    return 1.0 - trial(compressor, dim).kept, ScaledCompressor(compressor).part(dim)


def _less_noise(compression: CompressionPart) -> str:
    """Return the settings that make the compressor's error smaller than the vector that it compresses."""
    params = compression.params
    if params.get("unbiased"):
        return "unbiased: false"
    if "scaled" not in params:
        return "another compressor"
    norm = ", norm: max" if params.get("norm") == "l2" else ""
    return f"scaled: true{norm}, more bits or smaller buckets"
