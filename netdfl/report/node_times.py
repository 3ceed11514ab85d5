"""What the rounds of each node were spent on, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from netdfl.record.time_spent import seconds

NO_TIME = "Rounds took no virtual time: the scenario has neither compute time nor delays that would take any"


class NodeTime(NamedTuple):
    """Seconds of one node's mean round: all of them, those of training, those of waiting."""

    node: int
    train: float
    wait: float
    whole: float


def say_rounds(times: Sequence[NodeTime]) -> str:
    """The mean round of the median node and of the slowest, in a sentence."""
    slowest = max(times, key=lambda each: each.whole)
    if not slowest.whole:
        return f"{NO_TIME}."
    middle = seconds(float(np.median([each.whole for each in times])))
    return f"A round took {middle} at the median node, {seconds(slowest.whole)} at the slowest, node {slowest.node}."
