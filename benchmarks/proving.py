"""What a proof costs beside runs one after another, and what a second process gives: `python benchmarks/proving.py`.

All schedules of up to two losses, and of one crash, of D-PSGD on a ring of three over three rounds: plain and
acknowledged, without a deadline and with `deadline: auto`. Prints the CPU seconds of the proofs, those of the same
schedules as runs of `explore`'s executor, and their ratio; then how many times as fast two processes are as one for a
proof without symmetry, the median of some turns. Beside it stands what the machine itself gives: how many times as
much two processes do that know nothing of each other. Two processors of one core give less than two.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from typing import Any

from figures import about

from netdfl.core.types import Json
from netdfl.explore.execute import Executor
from netdfl.prove.bound import read_bound
from netdfl.prove.player import Play
from netdfl.prove.proof import ScenarioProof
from netdfl.prove.properties import ProvenProperty
from netdfl.scenario.load import load
from netdfl.scenario.model.schema import Scenario
from netdfl.study.background import stop_background

RING: dict[str, Any] = {
    "schema": "netdfl/1",
    "name": "proving",
    "nodes": 3,
    "rounds": 3,
    "world": {"kind": "simulated", "compute": "10ms"},
    "task": {"kind": "consensus", "dim": 1},
    "algorithm": "dpsgd",
    "topology": "ring",
    "links": {"default": {"latency": "5ms"}},
    "evaluation": {"local": "none"},
}
BOUNDS = ("loss: 2", "crash: 1")
WHO_ENDS = ProvenProperty("who waits, asked of all", lambda play: "")
"""As cheap as the properties of who waits, which it stands for: none ends the search early, as a stall would."""
FIGURES = replace(WHO_ENDS, name="figures, asked of all", numeric=True)
"""The same where no symmetry may be used."""


def scenarios() -> Iterator[Scenario]:
    """The four scenarios."""
    for delivery, deadline in product(("plain", "acknowledged"), ("none", "auto")):
        yield load({**RING, "delivery": delivery, "wait": {"deadline": deadline}})


def proven(scenario: Scenario, bound: str, asked: ProvenProperty, jobs: int = 1) -> int:
    """Prove; return how many schedules were answered."""
    answer = ScenarioProof(scenario, read_bound(bound), [asked], jobs=jobs).run()
    assert answer.survives, answer
    return answer.progress.schedules


def schedules(scenario: Scenario, bound: str) -> Sequence[Sequence[Json]]:
    """The events of every schedule."""
    proof, found = ScenarioProof(scenario, read_bound(bound), [FIGURES], without=("void", "symmetry")), []

    def seen(play: Play) -> None:
        found.append(play.events)

    proof.enumeration.prefix_player = replace(proof.enumeration.prefix_player, seen=seen)
    assert proof.run().survives
    return found


def run_all(scenario: Scenario, events: Sequence[Sequence[Json]]) -> None:
    """Run every schedule by explore's executor, one after another."""
    executor = Executor()
    for each in events:
        executor.run(scenario.model_copy(update={"events": [*map(dict, each)]}))


def main() -> None:
    """Take the times and print them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    stop_background()
    answered, proofs_s, runs_s = 0, 0.0, 0.0
    for scenario, bound in product(scenarios(), BOUNDS):
        all_of = schedules(scenario, bound)
        began = cpu_s()
        number = proven(scenario, bound, WHO_ENDS)
        between = cpu_s()
        run_all(scenario, all_of)
        assert number == len(all_of), (number, len(all_of))
        answered, proofs_s, runs_s = answered + number, proofs_s + between - began, runs_s + cpu_s() - between
    share = f"{proofs_s / runs_s:.2f} of the CPU"
    print(f"{answered:,} schedules: {proofs_s:.1f} CPU s proven, {runs_s:.1f} CPU s run one after another: {share}")
    with ProcessPoolExecutor(2) as pool:
        turns = [_ratios(pool) for _ in range(args.turns)]
    shared, apart = (statistics.median(each) for each in zip(*turns, strict=True))
    print(f"two processes are {shared:.2f} times as fast as one, of {apart:.2f} that the machine gives")
    print(about(f"one turn, then {args.turns}"))


def cpu_s() -> float:
    """CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _ratios(pool: ProcessPoolExecutor) -> tuple[float, float]:
    """Return how many times as fast as one process two are, at one proof and at two unrelated proofs."""
    alone = _wall_s(lambda: _one(1))
    shared = _wall_s(lambda: _one(2))
    apart = _wall_s(lambda: list(pool.map(_one, (1, 1))))
    return alone / shared, 2 * alone / apart


def _one(jobs: int) -> int:
    return proven(load({**RING, "delivery": "acknowledged", "wait": {"deadline": "none"}}), "loss: 2", FIGURES, jobs)


def _wall_s(do: Callable[[], object]) -> float:
    began = time.monotonic()
    do()
    return time.monotonic() - began


if __name__ == "__main__":
    main()
