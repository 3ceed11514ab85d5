"""A gate before a node's steps: while it is closed the node does not go on, whatever comes; it can be killed."""

from __future__ import annotations

import asyncio

import pytest

from netdfl.node.pause import PauseGate


class Walk:
    """A coroutine of three steps, each waiting for an event, with what it has seen."""

    def __init__(self) -> None:
        self.gate, self.seen = PauseGate(), list[str]()
        self.events = [asyncio.Event() for _ in range(3)]
        self.task = asyncio.create_task(self.gate.run(self.walk()))

    async def walk(self) -> None:
        try:
            for number, event in enumerate(self.events):
                await event.wait()
                self.seen.append(f"step {number}")
        except asyncio.CancelledError:
            self.seen.append("cancelled")
            raise

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_a_closed_gate_holds_the_next_step_and_an_open_one_lets_it_go_on() -> None:
    walk = Walk()
    walk.events[0].set()
    await walk.settle()
    assert walk.seen == ["step 0"]
    walk.gate.close()
    for event in walk.events:
        event.set()
    await walk.settle()
    assert walk.seen == ["step 0"]
    walk.gate.open()
    await walk.task
    assert walk.seen == ["step 0", "step 1", "step 2"]


@pytest.mark.parametrize("came", [False, True])
async def test_a_node_that_is_stopped_can_be_killed_and_ends_as_it_would(came: bool) -> None:
    """Whether it waits for what has not come, or for the gate."""
    walk = Walk()
    await walk.settle()
    walk.gate.close()
    if came:
        walk.events[0].set()
    await walk.settle()
    walk.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(walk.task, timeout=60)
    assert walk.seen == ["cancelled"]


async def test_an_error_that_is_no_end_waits_for_the_gate() -> None:
    gate, seen = PauseGate(), list[str]()

    async def fails() -> None:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, ValueError("what it waited for"))
        try:
            await future
        except ValueError as error:
            seen.append(str(error))

    task = asyncio.create_task(gate.run(fails()))
    await asyncio.sleep(0)
    gate.close()
    for _ in range(5):
        await asyncio.sleep(0)
    assert seen == []
    gate.open()
    await asyncio.wait_for(task, timeout=60)
    assert seen == ["what it waited for"]
