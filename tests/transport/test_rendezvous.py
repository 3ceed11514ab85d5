"""Nodes without a supervisor: what they ask each other, whom they refuse, and how well they agree on the start."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio
import pytest

from netdfl.core.errors import TransportError
from netdfl.transport.control.rendezvous import FINISHED, READY, RUNNING, Line, Rendezvous, Reply, make_call
from netdfl.transport.security.identity import Identity

RUN = bytes(range(8))
Ask = Callable[..., Any]


def me(node: int, run_id: bytes = RUN, scenario: str = "s", epoch: int = 0) -> Identity:
    return Identity(node, epoch, run_id, scenario)


@pytest.fixture
def rendezvous() -> Rendezvous:
    return Rendezvous(me(0), range(3))


@pytest.fixture
async def line(rendezvous: Rendezvous) -> AsyncIterator[Line]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((rendezvous.service(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    line = Line(0, f"127.0.0.1:{port}")
    yield line
    await line.aclose()
    await server.stop(None)


async def ask(line: Line, *words: Any, phase: Any = READY, **more: Any) -> Reply:
    return await line.ask(make_call(me(*words, **more), phase), 10)


async def test_the_first_learns_who_is_ready_and_others_who_is_missing(rendezvous: Rendezvous, line: Line) -> None:
    assert list((await ask(line, 1, b"", phase=0)).answer.missing) == [1, 2]
    reply = await ask(line, 1)
    assert (reply.answer.run_id, reply.start_ns) == (RUN, None)
    assert rendezvous.missing == [2]
    assert list((await ask(line, 2)).answer.missing) == [2]
    assert rendezvous.missing == []


async def test_the_start_is_known_to_half_of_the_time_that_the_answer_took(rendezvous: Rendezvous, line: Line) -> None:
    rendezvous.start_ns = time.monotonic_ns() + 10**9
    for _ in range(5):
        reply = await ask(line, 1)
        assert reply.start_ns is not None
        assert abs(reply.start_ns - rendezvous.start_ns) <= (reply.took_ns + 1) // 2


@pytest.mark.parametrize(
    ("caller", "words"),
    [
        (me(1, scenario="other"), "another scenario other, expected s"),
        (me(1, run_id=bytes(8)), "another run 0000000000000000"),
        (me(7), "node 7 is none of this fleet's 3 nodes"),
    ],
)
async def test_a_stranger_is_refused_and_the_reason_stays_here(
    rendezvous: Rendezvous, line: Line, caller: Identity, words: str
) -> None:
    reply = await line.ask(make_call(caller, READY), 10)
    assert reply.answer.refusal == "not of this fleet"
    assert words in rendezvous.refused.get(1, words)
    assert set(rendezvous.refused) == {caller.node} & {0, 1, 2}
    assert rendezvous.missing == [1, 2]


async def test_one_that_means_another_node_is_refused(rendezvous: Rendezvous, line: Line) -> None:
    line.peer = 2
    assert (await ask(line, 1)).answer.refusal == "not of this fleet"
    assert "another address, which it takes for node 2, expected 0" in rendezvous.refused[1]


async def test_a_later_life_is_news_once(rendezvous: Rendezvous, line: Line) -> None:
    news = []
    rendezvous.on_restart = lambda node, epoch: news.append((node, epoch))
    assert not (await ask(line, 1)).answer.HasField("known_epoch")
    await ask(line, 1, phase=FINISHED)
    assert rendezvous.finished[1].is_set()
    for _ in range(2):
        await ask(line, 1, phase=RUNNING, epoch=1)
    assert news == [(1, 1)]
    assert not rendezvous.finished[1].is_set()
    assert (await ask(line, 1, epoch=1)).answer.known_epoch == 1


async def test_one_that_nobody_has_met_is_known_by_its_first_words_in_a_later_life(
    rendezvous: Rendezvous, line: Line
) -> None:
    news = []
    rendezvous.on_restart = lambda node, epoch: news.append((node, epoch))
    await ask(line, 2, phase=RUNNING, epoch=3)
    assert news == [(2, 3)]


async def test_silence_is_an_error_that_names_the_node_and_the_line_can_be_used_again(line: Line) -> None:
    there, line.address = line.address, "localhost:1"
    with pytest.raises(TransportError, match=r"node 0 \(localhost:1\) does not answer"):
        await ask(line, 1)
    line.address = there
    assert (await asyncio.wait_for(ask(line, 1), 10)).answer.run_id == RUN
