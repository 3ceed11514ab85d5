"""Simulated fleets over an overlay: by the delays of the formula, and over core links that their messages share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from netdfl.core.types import Edge
from netdfl.record.run import Run, open_run
from netdfl.running.run import run
from netdfl.scenario.explain.explain import explain
from netdfl.scenario.load import load
from netdfl.study.cycle_times.overlays import CENTER, SECOND, Assumptions, Ways, star
from netdfl.study.cycle_times.silos import Silos

Document = dict[str, Any]


@dataclass(frozen=True)
class Overlay:
    """An overlay: a server in the central silo, or links between silos, of one round or of several in turn."""

    rounds: Sequence[Sequence[Edge]] = ()
    server: bool = False

    def scenario(self, name: str, num_silos: int, num_rounds: int, given: Assumptions) -> Document:
        """Return a scenario in which silos send vectors of the model's size over this overlay."""
        found: Document = {"schema": "netdfl/1", "name": name, "nodes": num_silos, "rounds": num_rounds}
        found["world"] = {"kind": "simulated", "compute": f"{given.step_ns}ns"}
        found["task"] = {"kind": "sized", "bytes": f"{given.model_bits // 8}B"}
        found["wait"] = {"for": "all", "deadline": "none"}
        if self.server:
            return found | {"algorithm": "fedavg", "topology": "star"}
        found["algorithm"] = "dpsgd"
        each = [[list(edge) for edge in edges] for edges in self.rounds]
        if len(each) == 1:
            return found | {"topology": {"kind": "edge_list", "edges": each[0], "directed": True}}
        return found | {"topology": {"kind": "by_round", "rounds": each}}


def by_formula(overlay: Overlay, ways: Ways, num_rounds: int) -> Document:
    """Return a fleet whose links have the delays of the formula, as latencies, and no rates."""
    found = overlay.scenario("by-formula", ways.num_silos, num_rounds, ways.given)
    step = ways.given.step_ns
    if overlay.server:
        server = ways.num_silos
        delays = {
            (server if src == CENTER else src, server if dst == CENTER else dst): delay
            for (src, dst), delay in ways.delays(star(ways)).items()
        }
    else:
        delays = ways.delays(overlay.rounds[0])
    found["links"] = {f"{src}->{dst}": {"latency": f"{delay - step}ns"} for (src, dst), delay in delays.items()}
    return found


def over_shared_lines(overlay: Overlay, silos: Silos, num_rounds: int, given: Assumptions) -> Document:
    """Return a fleet whose messages share the lines of the network and the access links of silos."""
    found = overlay.scenario("shared", silos.num_sites, num_rounds, given)
    lines = {
        f"s{a}--s{b}": {"latency": f"{round(given.km_ns * km)}ns", "rate": f"{given.core_bps}bit"}
        for (a, b), km in silos.km.items()
    }
    place = {str(node): f"s{node}" for node in range(silos.num_sites)}
    if overlay.server:
        place[str(silos.num_sites)] = f"s{CENTER}"
    found["underlay"] = {"links": lines, "place": place, "access": f"{given.access_bps}bit"}
    found["links"] = {"default": {"latency": f"{given.fixed_ns}ns"}}
    return found


def time_of_a_round(document: Mapping[str, object], span: int) -> tuple[Fraction, str]:
    """Run a scenario; return the mean time in ns of its last `span` rounds, and the bottleneck's name (or nothing)."""
    with TemporaryDirectory() as folder:
        found = open_run(run(load(dict(document)), out=Path(folder) / "run", page=False).path)
        narrow = (found.result.get("time") or {}).get("bottleneck") or {}
        return _mean_time(found, span), str(narrow.get("link", ""))


def _mean_time(found: Run, span: int) -> Fraction:
    rows = found.rows(
        "SELECT round, max(at_s) FROM metrics WHERE name = 'round_s' AND node IS NOT NULL GROUP BY round ORDER BY round"
    )
    ends = [round(at_s * SECOND) for _, at_s in rows]
    return Fraction(ends[-1] - ends[-1 - span], span)


TRAINED: Document = {
    "dataset": {"name": "digits", "partition": {"kind": "dirichlet", "alpha": 0.5}},
    "model": "mlp",
    "batch_size": 16,
}


def trained_over_shared_lines(overlay: Overlay, silos: Silos, num_rounds: int, given: Assumptions) -> Document:
    """Return a fleet like `over_shared_lines` that trains a perceptron on digits, an epoch of its silo's data a round.

    All rates are as much smaller as its messages are, so that each takes as long as the large one of the study.
    """
    found = overlay.scenario("trained", silos.num_sites, num_rounds, given)
    found["task"] = TRAINED
    bits = 8 * explain(load(found)).traffic.message_bytes
    scale = Fraction(bits, given.model_bits)
    small = replace(
        given, model_bits=bits, core_bps=round(given.core_bps * scale), access_bps=round(given.access_bps * scale)
    )
    shared = over_shared_lines(overlay, silos, num_rounds, small)
    evaluation = {"every": 1, "local": min(LOCAL, silos.num_sites)}
    algorithm = {"name": shared["algorithm"], "lr": 0.1, "local_epochs": 1}
    return shared | {"task": TRAINED, "algorithm": algorithm, "evaluation": evaluation}


LOCAL = 10
"""The number of silos whose own models are tested, so that a large fleet costs no more."""


def time_to_target(document: Mapping[str, object], target: float) -> tuple[int, float] | None:
    """Run a scenario; return the round and the seconds at which local models' mean accuracy reached `target`."""
    with TemporaryDirectory() as folder:
        found = open_run(run(load(dict(document)), out=Path(folder) / "run", page=False).path)
        rows = found.rows(
            "SELECT round, at_s FROM metrics WHERE name = 'mean_local_accuracy' AND value >= $target "
            "ORDER BY round LIMIT 1",
            {"target": target},
        )
        return (rows[0][0] + 1, rows[0][1]) if rows else None
