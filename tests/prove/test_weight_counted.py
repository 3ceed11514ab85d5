"""After any single crash the record accounts for the push-sum weight that is missing, to the last share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.prove.naive import FLEET, PAIR
from tests.prove.test_counts import ACKNOWLEDGED, proof

RANDOM = {"topology": {"kind": "random_push", "out_neighbors": 1, "redraw_every": 1}}
HEARD = {"failure_detector": {"kind": "heartbeat"}}


@pytest.mark.parametrize(
    "plain",
    [PAIR, PAIR | HEARD, FLEET | RANDOM],
    ids=["state lost as the last share was under way", "acknowledged, not yet taken note of", "taken before a crash"],
)
def test_all_weight_that_a_crash_takes_away_is_in_the_record(plain: dict[str, Any]) -> None:
    """A share that is under way as its sender loses its state is nobody's once its receiver has refused it."""
    answer = proof({**plain, "algorithm": "sgp", **ACKNOWLEDGED}, "crash: 1", ("counted",)).run()
    assert answer.survives, answer.progress.broken
