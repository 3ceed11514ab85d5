"""The numbers that links and schedules go by, and how a unit's luck is drawn from its name."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from netdfl.core.rng import Streams
from netdfl.core.types import Kind, MessageId, StepId
from netdfl.links.edge_state import EdgeState, PathPlan
from netdfl.links.engine import InFlight
from netdfl.links.path import Path
from netdfl.links.rules import mahimahi, rate, tcp
from netdfl.links.rules.base import Transit
from netdfl.links.rules.disorder import reorder
from netdfl.links.rules.keyed_random import (
    count_uniform,
    edge_order_key,
    message_order_key,
    unit_uniform,
)
from netdfl.links.schedule import changes, events
from netdfl.links.schedule.active_changes import EffectiveValue
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.when import Facts, Span

LIMITS: list[tuple[Any, dict[str, float]]] = [
    (mahimahi, {"OPPORTUNITY_BYTES": 1500}),
    (tcp, {"SEGMENT": 1448, "HEADERS": 52}),
    (changes, {"APART": 4}),
    (events, {"MOST": 3, "STANDING": -1}),
]


@pytest.mark.parametrize(("of", "limits"), LIMITS)
def test_links_go_by_these_numbers(of: Any, limits: dict[str, float]) -> None:
    assert {name: getattr(of, name) for name in limits} == limits


def test_what_is_not_said_is_so() -> None:
    plain = CompiledEvent("set", 3)
    assert (plain.after_ns, plain.cause, plain.source) == (0, -1, 3)
    assert (Span(3), EffectiveValue(None)) == (Span(3, None, False, None), EffectiveValue(None, 1.0))
    assert rate.serial(rate=8.0) == rate.Shape(8.0, 0, None, None)
    assert reorder(probability=0.5).delay_ns == 10**7
    unit = Transit(0, 1, Kind.DATA, 0, 0, 0, 10)
    assert (unit.copy, unit.corrupted) == (0, False)


KINDS = {kind: code for code, kind in enumerate(Kind)}


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("seed", [0, 2**63 + 5])
def test_a_units_luck_is_a_hash_of_what_it_is_known_by(kind: Kind, seed: int) -> None:
    unit = Transit(3, 7, kind, 4, 2, 1, 100, copy=5)
    own = xxh3_64_intdigest(struct.pack("<4qB", 4, 2, 1, 5, KINDS[kind]), seed)
    assert unit_uniform(seed, unit) == ((own >> 12) + 0.5) * 2.0**-52
    assert count_uniform(seed, -3) == ((xxh3_64_intdigest(struct.pack("<q", -3), seed) >> 12) + 0.5) * 2.0**-52


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("seed", [0, 2**63 + 5])
def test_the_order_within_an_instant_is_a_hash_of_edge_and_message(kind: Kind, seed: int) -> None:
    id = MessageId(kind, 6, StepId(4, 2), 0, 1)
    assert message_order_key(seed, id) == xxh3_64_intdigest(struct.pack("<4qB", 6, 4, 2, 1, KINDS[kind]), seed)
    assert edge_order_key(seed, 3, 7) == xxh3_64_intdigest(struct.pack("<4qB", 3, 7, 0, 0, 255), seed)
    key = 2**64 - 3
    edge: Any = EdgeState((3, 7), Path((3, 7), ()), PathPlan(0))
    units = [InFlight.of(edge, None, id, 100, key, copy) for copy in (0, 1, 3)]
    assert [unit.key for unit in units] == [key, 0x61C8864680B583E8, 0x255992D382208BC2]


def test_times_are_not_held_against_rounds() -> None:
    crash = [{"at_round": 3, "crash": 1}, {"at_round": 4, "crash": 1}]
    facts = Facts(4, Streams(1), {}, 100 * 10**9, 50)
    assert len(compile_events([*crash, {"at": "1s", "restart": 1}], facts)) == 3
    assert len(compile_events([{"at": "1s", "pause": 1}, {"at_round": 2, "pause": 1, "for": "1s"}], facts)) == 3
    with pytest.raises(ValueError, match="in the midst"):
        compile_events(crash, facts)
