"""Small parts of a node at their bounds: strangers, what was sent, whose parts draw, and what silence is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange
from netdfl.core.types import Kind, Message, Payload, StepId
from netdfl.node.deadline import LAST, AutoDeadline, Suspects
from netdfl.node.ledger import (
    EACH_RECORDED,
    MOST_ORIGINS,
    MOST_RUNS,
    RefusalLimiter,
    SentSteps,
    origin_of,
    with_round,
)
from netdfl.node.mailbox import Mailbox
from netdfl.node.own_draws import has_own_parts
from netdfl.transport.base import deliver_one


def test_from_the_hundred_and_first_on_one_row_stands_for_a_hundred_strangers() -> None:
    strangers = RefusalLimiter()
    rows = [strangers.count("name") for _ in range(400)]
    assert EACH_RECORDED == 100
    assert rows == [1] * 100 + ([0] * 99 + [100]) * 3
    assert strangers.count("key") == 1


@pytest.mark.parametrize(
    ("what", "origin"),
    [
        ("a call (from ipv4:10.0.0.2:4711)", "10.0.0.2"),
        ("a call (from ipv4:10.0.0.2:4711, user 65534)", "10.0.0.2, user 65534"),
        ("a call (from ipv4:127.0.0.1:1, user 7, node 3 of run 1 by its certificate)", "127.0.0.1, user 7"),
        ("a call (from ipv6:[::1]:4711, user 0)", "[::1], user 0"),
        ("64 connections were ended (from 10.0.0.2)", "10.0.0.2"),
        ("a connection from 10.0.0.2, port 4711, ended before it spoke HTTP/2: 3 bytes came", "10.0.0.2"),
        ("a first report of '(from ipv4:10.9.9.9:1)' came (from ipv4:10.0.0.2:4711)", "10.0.0.2"),
        ("a connection ended before TLS knew it", ""),
        ("", ""),
    ],
)
def test_a_refusal_tells_address_and_user_and_no_port(what: str, origin: str) -> None:
    assert origin_of(what) == origin


def test_a_flood_of_one_stranger_hides_no_other_and_the_addresses_told_apart_are_few() -> None:
    limiter = RefusalLimiter()

    def rows(host: str, times: int) -> int:
        return sum(limiter.count("foreign", None, f"a call (from ipv4:{host}:{port})") for port in range(times))

    assert rows("10.0.0.1", 5 * EACH_RECORDED) == 5 * EACH_RECORDED
    assert limiter.count("foreign", None, "a call (from ipv4:10.0.0.1:9)") == 0
    for other in range(2, MOST_ORIGINS + 1):
        assert limiter.count("foreign", None, f"a call (from ipv4:10.0.0.{other}:9)") == 1
    assert [rows(f"10.0.{more}.1", 1) for more in range(1, EACH_RECORDED + 2)] == [1] * EACH_RECORDED + [0]
    assert limiter.count("foreign", None, f"a call (from ipv4:10.0.0.{MOST_ORIGINS}:9)") == 1
    assert limiter.count("foreign", 1, "a call (from ipv4:10.0.0.1:9)") == 1, "a member is its number"


SLOTS = [StepId(round, step) for round in (0, 1, 2) for step in (0, 1)]


def runs_of(spans: Sequence[tuple[StepId, StepId]]) -> list[tuple[StepId, StepId]]:
    """The runs in the plainest words: a span that begins past all others goes on with the last run or is a new one."""
    runs = [spans[0]]
    for first, last in spans[1:]:
        begun, end = runs[-1]
        onward = (end.round, end.step + 1), (end.round + 1, 0)
        if first <= end or first in onward:
            runs[-1] = begun, max(end, last)
        else:
            runs.append((first, last))
    return runs


def test_what_was_sent_in_a_row_is_one_run_whatever_is_sent_when() -> None:
    spans = [(first, last) for first in SLOTS for last in (first, SLOTS[-1])]
    for sent in product(spans, repeat=3):
        slots = SentSteps(("data", 0), sent[0][0])
        for span in sent:
            slots.add(*span)
        assert list(slots.runs) == runs_of(sent), sent


def test_the_last_256_runs_are_remembered() -> None:
    many = SentSteps(("data", 0), StepId(0, 0))
    for round in range(2, 2 * MOST_RUNS + 4, 2):
        many.add(StepId(round, 0), StepId(round, 0))
        assert many.runs[-1] == ((round, 0), (round, 0))
        assert many.runs[0][0] == (max(0, round - 2 * (MOST_RUNS - 1)), 0)
    assert len(many.runs) == MOST_RUNS == 256


def test_rounds_in_a_row_are_one_run_and_the_last_256_are_remembered() -> None:
    for rounds in product(range(4), repeat=4):
        runs: tuple[tuple[int, int], ...] = ()
        expected: list[list[int]] = []
        for round in rounds:
            runs = with_round(runs, round)
            if expected and round in [*expected[-1], expected[-1][-1] + 1]:
                expected[-1] = sorted({*expected[-1], round})
            else:
                expected.append([round])
        assert runs == tuple((each[0], each[-1]) for each in expected), rounds
    for round in range(0, 2 * MOST_RUNS + 4, 2):
        runs = with_round(runs, 10 + round)
    assert (len(runs), runs[0], runs[-1]) == (MOST_RUNS, (14, 14), (524, 524))


@dataclass(frozen=True)
class Mine:
    """A part that is no part of netdfl."""


def test_a_users_own_part_is_found_wherever_it_sits_in_netdfls() -> None:
    plain = ALGORITHMS["dfedavg"].build(Exchange())
    assert not has_own_parts(plain)
    mine: Any = Mine()
    for part in ("mixing", "wait", "refine"):
        assert has_own_parts(replace(plain, **{part: mine}))
    names = [name for name in getattr(plain.mixing, "__dataclass_fields__", {})]
    inside: Any = replace(plain.mixing, **{names[0]: mine})  # type: ignore[type-var]
    assert has_own_parts(replace(plain, mixing=inside))


def test_a_deadline_is_of_the_longest_round_of_the_last_eight_and_the_quarter_of_the_last_lags() -> None:
    auto = AutoDeadline()
    assert (auto.knows, auto.ns(), auto.at_most_ns()) == (False, auto.FIRST_NS, auto.LONGEST_NS)
    auto.trained(10 * auto.FIRST_NS)
    assert auto.ns() == auto.ROUNDS * 10 * auto.FIRST_NS
    assert auto.at_most_ns() == 10 * auto.ROUNDS * 10 * auto.FIRST_NS
    for _ in range(7):
        auto.trained(auto.LEAST_NS)
    assert (auto.ns(), auto.at_most_ns()) == (auto.ROUNDS * 10 * auto.FIRST_NS, 100 * auto.ROUNDS * auto.FIRST_NS)
    auto.trained(auto.LEAST_NS)
    assert auto.after(0) == auto.ROUNDS * auto.LEAST_NS
    for lag in range(LAST):
        auto.came(1, lag)
    assert auto.knows
    assert auto.ns() == auto.after(LAST // 4) == auto.ROUNDS * auto.LEAST_NS + auto.LAGS * (LAST // 4)
    auto.came(10**9, 7)
    assert auto.ns() == auto.after(7)
    quick = AutoDeadline()
    quick.came(1, 0)
    assert quick.ns() == quick.LEAST_NS


def test_a_late_message_teaches_how_late_it_was_where_its_wait_is_remembered() -> None:
    auto = AutoDeadline()
    auto.began(3, 1, 100)
    for slot in ((3, 0), (1, 3), (2, 1)):
        auto.late(*slot, 999)
    assert not auto.knows
    auto.late(3, 1, 10**10 + 100)
    assert auto.ns() == auto.after(10**10)


@pytest.mark.parametrize(("missed", "silent"), [([1], False), ([1, 1], True), ([2], True), ([1, "heard", 1], False)])
def test_who_is_missed_twice_in_a_row_is_silent_until_it_is_heard(missed: list[object], silent: bool) -> None:
    mailbox = Mailbox(keep_late=False)
    suspects = Suspects(mailbox)
    assert suspects.nodes() == frozenset()
    for round, times in enumerate(missed):
        if isinstance(times, int):
            suspects.missed(4, times)
        else:
            deliver_one(mailbox, Message(4, 9, Kind.DATA, 0, round, 0, 0, Payload()))
    suspects.missed(5)
    assert suspects.nodes() == ({4} if silent else set())
    deliver_one(mailbox, Message(4, 9, Kind.DATA, 0, 9, 0, 0, Payload()))
    assert suspects.nodes() == frozenset()
