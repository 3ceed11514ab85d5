"""Runs in namespaces, half of them killed at a random moment: no process, namespace, device or socket stays.

python -m tests.soak.namespaces_cleanup --count 50
"""

from __future__ import annotations

from random import Random

from tests.soak.leftovers import ENDS, LATEST_S, run_and_look
from tests.soak.tally import main

SCENARIO = """
schema: netdfl/1
name: cleanup
nodes: 4
rounds: {rounds}
world: namespaces
task: {{kind: quadratic, dim: 2000}}
algorithm: {{name: lian_dpsgd, lr: 0.1}}
topology: ring
wait: {{deadline: 30s}}
links: {{default: {{latency: 2ms, rate: 10Mbit, loss: 1%}}}}
evaluation: {{every: 1000}}
"""


def trial(rng: Random, number: int) -> str | None:
    """One run: finished, or killed before or after the network is made."""
    end = ENDS[number % 2]
    scenario = SCENARIO.format(rounds=20 if end == "finish" else 100_000)
    return run_and_look(scenario, end, rng.uniform(0.2, LATEST_S))


if __name__ == "__main__":
    main("namespaces: nothing is left", trial, 50)
