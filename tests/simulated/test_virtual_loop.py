"""The virtual loop: exact time, an order that nobody's haste decides, and nothing from outside."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdfl.core.errors import VirtualTimeError
from netdfl.node.pause import PauseGate
from netdfl.worlds.simulated.loop import SCRIPT, VirtualClock, VirtualLoop


def run(main: Callable[[VirtualLoop], Coroutine[Any, Any, Any]], seed: int = 0) -> Any:
    """Run `main(loop)` on a new virtual loop."""
    loop = VirtualLoop(seed)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main(loop))


def test_time_jumps_to_the_nanosecond_and_never_drifts() -> None:
    async def main(loop: VirtualLoop) -> int:
        for _ in range(10_000):
            await asyncio.sleep(0.1)
        return loop.now_ns

    assert run(main) == 1_000_000_000_000


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=20))
def test_named_timers_fire_at_exactly_their_times(times: list[int]) -> None:
    async def main(loop: VirtualLoop) -> list[tuple[int, int]]:
        fired: list[tuple[int, int]] = []
        for number, at_ns in enumerate(times):
            loop.call_at_ns(at_ns, ("t", number), lambda at_ns=at_ns: fired.append((at_ns, loop.now_ns)))
        await VirtualClock(loop).sleep_until(max(times) + 1)
        return fired

    fired = run(main)
    assert [wanted for wanted, _ in fired] == sorted(times)
    assert all(wanted == now for wanted, now in fired)


def test_ties_do_not_depend_on_who_asked_first_but_on_the_seed() -> None:
    def order(names: tuple[int, ...], seed: int) -> list[int]:
        async def main(loop: VirtualLoop) -> list[int]:
            fired: list[int] = []
            for name in names:
                loop.call_at_ns(5, ("wait", name), partial(fired.append, name))
            await asyncio.sleep(1)
            return fired

        found: list[int] = run(main, seed)
        return found

    orders = {tuple(order(names, 1)) for names in permutations(range(4))}
    assert len(orders) == 1
    assert len({tuple(order((0, 1, 2, 3), seed)) for seed in range(10)}) > 1


def test_an_instant_has_an_order_of_kinds() -> None:
    class Network:
        due: int | None = 7

        def next_ns(self) -> int | None:
            return self.due

        def run(self, now_ns: int) -> None:
            self.due = None
            said.append("network")

    said: list[str] = []

    async def main(loop: VirtualLoop) -> None:
        loop.source = Network()
        loop.call_later(7e-9, said.append, "anonymous")
        loop.call_at_ns(7, ("wait",), lambda: said.append("named"))
        loop.call_at_ns(7, ("event",), lambda: said.append("script"), SCRIPT)
        await asyncio.sleep(1)

    run(main)
    assert said == ["script", "network", "named", "anonymous"]


def test_what_one_step_makes_runnable_runs_before_the_next_kind() -> None:
    said: list[str] = []

    async def main(loop: VirtualLoop) -> None:
        loop.call_at_ns(7, ("event",), lambda: loop.call_soon(said.append, "consequence"), SCRIPT)
        loop.call_at_ns(7, ("wait",), lambda: said.append("named"))
        await asyncio.sleep(1)

    run(main)
    assert said == ["consequence", "named"]


def test_when_nothing_can_ever_run_again_it_says_so_at_once() -> None:
    async def main(loop: VirtualLoop) -> tuple[str, int]:
        stuck = loop.create_future()
        loop.on_idle = lambda: stuck.set_result("deadlock")
        await asyncio.sleep(3)
        return await stuck, loop.now_ns

    assert run(main) == ("deadlock", 3 * 10**9)


def test_without_a_verdict_it_fails_instead_of_hanging() -> None:
    async def main(loop: VirtualLoop) -> None:
        await loop.create_future()

    with pytest.raises(VirtualTimeError, match="nothing can ever run again"):
        run(main)


async def _connect(loop: VirtualLoop) -> None:
    await asyncio.open_connection("127.0.0.1", 1)


async def _serve(loop: VirtualLoop) -> None:
    await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)


async def _thread(loop: VirtualLoop) -> None:
    await asyncio.to_thread(lambda: None)


async def _executor(loop: VirtualLoop) -> None:
    await loop.run_in_executor(None, lambda: None)


async def _process(loop: VirtualLoop) -> None:
    await asyncio.create_subprocess_exec("true")


async def _read(loop: VirtualLoop) -> None:
    with socket.socket() as end:
        await loop.sock_recv(end, 1)


@pytest.mark.parametrize("what", [_connect, _serve, _thread, _executor, _process, _read])
def test_what_returns_at_a_real_time_is_refused(what: Callable[[VirtualLoop], Coroutine[Any, Any, None]]) -> None:
    with pytest.raises(VirtualTimeError, match="can't live under the virtual clock"):
        run(what)


def test_a_thread_that_calls_back_is_refused_in_the_loop_too() -> None:
    refused: list[BaseException] = []

    def call_back(loop: VirtualLoop) -> None:
        try:
            loop.call_soon_threadsafe(lambda: None)
        except VirtualTimeError as error:
            refused.append(error)

    async def main(loop: VirtualLoop) -> None:
        thread = threading.Thread(target=call_back, args=(loop,))
        thread.start()
        thread.join()
        await asyncio.sleep(1)

    with pytest.raises(VirtualTimeError, match="a thread that calls back"):
        run(main)
    assert refused


def test_a_gate_holds_a_coroutine_where_it_stands() -> None:
    async def main(loop: VirtualLoop) -> list[int]:
        clock, gate, seen = VirtualClock(loop), PauseGate(), []

        async def work() -> None:
            for second in (1, 2, 3):
                await clock.sleep_until(second * 10**9)
                seen.append(loop.now_ns // 10**9)

        loop.call_later(1.5, gate.close)
        loop.call_later(10, gate.open)
        await gate.run(work())
        return seen

    assert run(main) == [1, 10, 10]


def test_a_closed_gate_lets_a_cancellation_through() -> None:
    async def main(loop: VirtualLoop) -> str:
        gate = PauseGate()
        ends: list[str] = []

        async def work() -> None:
            try:
                await asyncio.sleep(5)
            finally:
                ends.append("cleaned up")

        task = asyncio.create_task(gate.run(work()))
        await asyncio.sleep(1)
        gate.close()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        return ends[0]

    assert run(main) == "cleaned up"
