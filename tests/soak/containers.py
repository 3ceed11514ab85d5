"""Runs in containers, half of them killed at a random moment: after the next run's sweep nothing of them is left.

python -m tests.soak.containers --count 50
"""

from __future__ import annotations

import asyncio
from random import Random

from netdfl.testing.leftovers import containers
from netdfl.worlds.containers.docker import Docker
from netdfl.worlds.containers.world import sweep
from tests.soak.leftovers import ENDS, LATEST_S, run_and_look
from tests.soak.tally import main

SCENARIO = """
schema: netdfl/1
name: cleanup
nodes: 3
rounds: {rounds}
world: containers
task: {{kind: quadratic, dim: 200}}
algorithm: {{name: lian_dpsgd, lr: 0.1}}
topology: full
wait: {{deadline: 30s}}
links: {links}
evaluation: {{every: 1000000}}
"""
LINKS = ("{default: {latency: 2ms, rate: 10Mbit, loss: 1%}}", "{}")


def trial(rng: Random, number: int) -> str | None:
    """One run, over the forwarder or a bridge: finished, or killed between its first second and its rounds."""
    end = ENDS[number % 2]
    scenario = SCENARIO.format(rounds=20 if end == "finish" else 1_000_000, links=LINKS[number // 2 % 2])
    delay_s = rng.uniform(0.5, LATEST_S)
    return run_and_look(scenario, end, delay_s, "--no-page", after_kill=lambda: asyncio.run(_sweep()), more=containers)


async def _sweep() -> None:
    """What the next run does first."""
    await sweep(await Docker.find(), print)


if __name__ == "__main__":
    main("containers: nothing is left", trial, 50)
