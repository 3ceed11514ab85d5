"""Parts of a study and of a scenario of a few short runs, to which tests add what they are about."""

from __future__ import annotations

FEW = """\
schema: netdfl/study/1
name: mine
sweeps:
  few:
    scenario:
      schema: netdfl/1
      name: few
      nodes: 3
      rounds: 2
      world: simulated
      task: {kind: consensus, dim: 2}
      algorithm: dpsgd
"""
IN_TIME = """\
nodes: 4
rounds: 4
world: simulated
task: {kind: quadratic, dim: 2}
algorithm: {name: dpsgd, lr: 0.1}
topology: ring
wait: {deadline: 30ms}
links: {default: {latency: 5ms}}
"""
"""The rest of a scenario, below its schema and name, in which lost messages are waited for until a deadline."""
