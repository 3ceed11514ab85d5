"""Scenarios of fleets over an overlay: with the delays of a formula, or with core links that messages share."""

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
    """An overlay between silos, each of which is a node.

    Attributes:
        rounds: the directed links of each round, used in turn; a single entry is used in every round.
        server: whether all silos talk to one server in the central silo instead.
    """

    rounds: Sequence[Sequence[Edge]] = ()
    server: bool = False

    def scenario(self, name: str, num_silos: int, num_rounds: int, given: Assumptions) -> Document:
        """Return a scenario in which silos send vectors of the model's size over this overlay.

        Args:
            name: the name of the scenario.
            num_silos: the number of silos.
            num_rounds: the number of rounds.
            given: the sizes, rates and times that the paper assumes.
        """
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
    """Return a scenario whose links have the delays of a formula (`Ways.delays`) as latencies, and no rates."""
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
    """Return a scenario whose messages share the rates of the network's lines and of the silos' access links."""
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
    """Run a scenario; return the mean time in ns of its last `span` rounds, and the name of its bottleneck link.

    The name is empty if the run has no bottleneck.
    """
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
    """Return a scenario like `over_shared_lines` that trains a perceptron on digits, one epoch a round.

    Its messages are smaller than those of `over_shared_lines`, and all rates are smaller by the same factor, so that
    each message takes equally long.
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
"""The number of silos whose own models are tested; it is bounded so that large fleets take no longer."""


def time_to_target(document: Mapping[str, object], target: float) -> tuple[int, float] | None:
    """Run a scenario; return the round and the time in s at which the local models' mean accuracy reached `target`.

    The result is None if it was never reached.
    """
    with TemporaryDirectory() as folder:
        found = open_run(run(load(dict(document)), out=Path(folder) / "run", page=False).path)
        rows = found.rows(
            "SELECT round, at_s FROM metrics WHERE name = 'mean_local_accuracy' AND value >= $target "
            "ORDER BY round LIMIT 1",
            {"target": target},
        )
        return (rows[0][0] + 1, rows[0][1]) if rows else None
