"""The beginning of a study of a few short runs, to which tests append what they are about."""

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
