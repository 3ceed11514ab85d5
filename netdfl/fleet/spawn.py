"""The launcher's hold on the nursery: commands down a pipe, answers and ends of children up another."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from netdfl.core.errors import InputError, RunError

_GRPC = {
    "GRPC_VERBOSITY": "NONE",
    # Sockets are read by the thread that waits for them, not by one of a pool: half the switches between threads.
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
}

HERE: Mapping[str, str] = {}


class Nursery:
    """Made as early as possible: it imports torch while the scenario is being read."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Take over a nursery process."""
        self.process = process
        self.ended = asyncio.Event()
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._on_exit: Callable[[int, int, str | None], None] = lambda pid, code, signal: None
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    def open(cls) -> Self:
        """Start the process; it answers to nothing before `plan`."""
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "netdfl.fleet.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_GRPC | os.environ | threads,
            start_new_session=True,
        )
        return cls(process)

    async def plan(self, plan: Mapping[str, Any], on_exit: Callable[[int, int, str | None], None]) -> dict[str, Any]:
        """Hand over the plan; return what the nursery found (`gpus`, `dim`, `partition`).

        `on_exit(pid, code, signal)` is called for every child that ends.

        Raises:
            InputError: the plan can't be carried out: data missing, parts that do not fit.
            RunError: the nursery broke.
        """
        self._on_exit = on_exit
        self._reading = asyncio.create_task(self._read())
        answer = await self._ask({"plan": dict(plan)})
        if "error" in answer:
            raise InputError(answer["error"])
        found: dict[str, Any] = answer["ready"]
        return found

    async def spawn(
        self,
        nodes: list[int],
        device: str,
        epoch: int = 0,
        *,
        place: Mapping[str, str] = HERE,
        rejoin: Mapping[str, Any] | None = None,
    ) -> int:
        """Fork a process for `nodes` (-1: the evaluator); return its id. Raises RunError.

        `place` may hold the `namespace` that the process enters, and the `address` at which its node listens.
        `rejoin` says for a node's later life in which `round` it begins, and whether it may `keep_state`.
        """
        command = {"nodes": nodes, "device": device, "epoch": epoch, "rejoin": rejoin, **place}
        answer = await self._ask({"spawn": command})
        return int(answer["spawned"]["pid"])

    def kill(self, pid: int) -> None:
        """Kill one child."""
        self._tell({"kill": pid})

    def close(self) -> None:
        """End the nursery and every child of it; at once where it has nothing to end."""
        if self._reading is None:
            self.process.kill()
        if self._reading is not None:
            self._tell({"end": None})
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):  # what an ended process did not read is still to be flushed
                self.process.stdin.close()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self._reading is not None:
            self._reading.cancel()
        if self.process.stdout is not None and self._reading is None:
            self.process.stdout.close()

    def _tell(self, command: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            self.ended.set()

    async def _ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        self._tell(command)
        answer = asyncio.create_task(self._answers.get())
        over = asyncio.create_task(self.ended.wait())
        await asyncio.wait({answer, over}, return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        if not answer.done():
            answer.cancel()
            raise RunError("the process that starts the nodes ended; its own words are above")
        return answer.result()

    async def _read(self) -> None:
        assert self.process.stdout is not None
        reader = asyncio.StreamReader(limit=1 << 26)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self.process.stdout)
        try:
            while line := await reader.readline():
                answer = json.loads(line)
                if "exited" in answer:
                    gone = answer["exited"]
                    self._on_exit(gone["pid"], gone["code"], gone["signal"])
                else:
                    self._answers.put_nowait(answer)
        finally:
            self.ended.set()
            transport.close()


def log_tail(directory: Path, node: int, lines: int = 3) -> str:
    """The last lines of a node's log, for an error message."""
    path = directory / "logs" / f"{node:03d}.log"
    text = path.read_text(errors="replace").strip().splitlines() if path.is_file() else []
    return " | ".join(text[-lines:])
