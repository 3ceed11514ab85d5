"""After a reset a link is as one that has carried nothing: what enters then waits for nobody."""

from __future__ import annotations

from typing import Any

import pytest

from netdfl.core.types import Kind
from netdfl.links.rules.base import Transit
from netdfl.links.rules.latency import Latency, constant
from netdfl.links.rules.loss import Bernoulli
from netdfl.links.rules.named import NamedDelay, NamedMessages
from netdfl.links.rules.rate import Rate, Shape
from netdfl.links.rules.tcp import Tcp, default_table

S = 10**9
LATE = {"latency": constant(delay=10 * S)}
STAGES: dict[str, Any] = {
    "latency": lambda: Latency(0, constant(delay=1)),
    "rate": lambda: Rate(Shape(8e9)),
    "named": lambda: NamedDelay([NamedMessages(at_round=0, until_round=1, by_ns=50)]),
    "tcp": lambda: Tcp(7, default_table(), Bernoulli(0, probability=0.0), Shape(8e9), constant(delay=1)),
}


def unit(round: int) -> Transit:
    return Transit(0, 1, Kind.DATA, round, 0, 0, 100)


@pytest.mark.parametrize("name", STAGES)
def test_what_enters_after_a_reset_leaves_as_from_a_stage_made_anew(name: str) -> None:
    used, fresh = STAGES[name](), STAGES[name]()
    if name == "latency":
        used.changed(LATE, 0)
    for number in range(50):
        used.enter(unit(0), number)
    if name == "latency":
        used.changed({"latency": constant(delay=1)}, 60)
    assert used.advance(unit(2), 60) > 61, "it waits for those before it"
    assert used.changed({"state": "down_reset"}, 61)
    assert used.advance(unit(2), 61) == fresh.advance(unit(2), 61)
