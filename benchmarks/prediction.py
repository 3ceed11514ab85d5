"""Does the simulated world foresee how long a fleet of real processes takes?

    python benchmarks/prediction.py [--rounds 20]

Eight nodes on a ring train a model of 167,946 parameters over links of 100 ms and 20 Mbit/s. The scenario runs
simulated, with local rounds timed on this machine beforehand (`world.compute: measured`), and then in
processes. What is compared is the time from the fleet's common start to the end of its last round, without
the start of the processes. Prints a JSON list of one row: name, value, unit, reference, reference_value, ratio;
exits 1 where the two differ by more than 10 %.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from figures import Row, show

from netdfl.running.run import run
from netdfl.scenario.load import loads

SCENARIO = """
schema: netdfl/1
name: prediction
nodes: 8
task:
  dataset: {name: digits, partition: iid}
  model: {name: mlp, hidden: [512, 256]}
algorithm: {name: dfedavg, lr: 0.1, local_epochs: 1}
topology: ring
links: {default: {latency: 100ms, rate: 20Mbit}}
wait: {deadline: none}
evaluation: {local: none}
"""
BOUND = 0.10
LAST_ROUND = "SELECT max(at_s) FROM metrics WHERE node IS NOT NULL"


def seconds(world: str, rounds: int, directory: Path) -> float:
    """From the common start to the end of the last node's last round."""
    simulated = ("world.compute=measured",) if world == "simulated" else ()
    sets = [f"world.kind={world}", "world.loss_layer=message", f"rounds={rounds}", f"evaluation.every={rounds}"]
    finished = run(loads(SCENARIO, [*sets, *simulated]), out=directory / world)
    found: float = finished.run.rows(LAST_ROUND)[0][0]
    return found


def main() -> None:
    """Run both, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as directory:
        foreseen, measured = (seconds(world, rounds, Path(directory)) for world in ("simulated", "processes"))
    title, ratio = f"{rounds} rounds, simulated", foreseen / measured
    show([Row(title, foreseen, "s", "processes", measured, ratio)], f"one run of each, bound {BOUND:.0%}")
    sys.exit(abs(ratio - 1) > BOUND)


if __name__ == "__main__":
    main()
