"""The client of the fork server: commands go through one pipe, answers and ends of children through another."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Protocol, Self

from netdfl.core.control import Exit
from netdfl.core.errors import InputError, MachineError, RunError
from netdfl.core.noticed import noticed_timeout
from netdfl.core.process import Child, allow_open_files, end_child
from netdfl.core.types import Json, NodeId
from netdfl.host.plan import Command, RunPlan

ENVIRONMENT = {
    "GRPC_VERBOSITY": "NONE",
    # Sockets are read by the thread that waits for them, not by one of a pool: half the switches between threads.
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
}
"""Default environment variables of a fork server."""
GIVEN_BYTES = 256 * 1024
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class ServerProcess(Child, Protocol):
    """The process of a fork server, with pipes to its input and from its output."""

    stdout: IO[bytes] | None


@dataclass(frozen=True)
class PreloadResult:
    """The answer of a fork server that has loaded the plan of a run.

    Attributes:
        gpus: the number of GPUs of its machine.
        partition: the number of examples of each label at each client; None: no labels.
        notes: remarks on the data.
    """

    gpus: int
    partition: Json | None
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class ChildExit:
    """The end of a child process, by an exit code or a signal; `words` are the last lines of its log."""

    pid: int
    code: int
    signal: str | None = None
    words: str = ""


OnExit = Callable[[NodeId, Exit], None]


class ForkServer:
    """The client of a fork server, which forks every node. Create it early: the server imports torch meanwhile."""

    def __init__(self, process: ServerProcess) -> None:
        """Send commands to, and read answers from, the fork server in `process`, which was just started."""
        self.process = process
        self.ended = asyncio.Event()
        self.processes: dict[int, Command] = {}
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._unclaimed: dict[int, ChildExit | None] = {}  # children whom `spawn` has yet to return, and how they ended
        self._on_exit: OnExit = lambda node, how: None
        self._changed = asyncio.Event()
        self._ending: threading.Thread | None = None
        self._reading: asyncio.Task[None] | None = None
        self._asking = asyncio.Lock()

    @classmethod
    def open(cls, through: Sequence[str] = (), environment: Mapping[str, str] = os.environ) -> Self:
        """Start a fork server here, or elsewhere by the command `through`; before `plan` it only answers `look`.

        `environment` is its environment, by default this process's.
        """
        allow_open_files()  # here, where every node attends, and in all that is started
        process = subprocess.Popen(
            [*through, sys.executable, "-m", "netdfl.worlds.forkserver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=ENVIRONMENT | dict(environment) | ONE_THREAD,
            start_new_session=True,
        )
        return cls(process)

    async def look(self, question: Json) -> dict[str, Any]:
        """Ask the fork server a question about its machine, even before `plan`; return the answer. Raises RunError."""
        self._begin_to_read()
        found: dict[str, Any] = (await self._ask({"look": question}))["looked"]
        if "failed" in found:
            raise RunError(found["failed"])
        return found

    def _begin_to_read(self) -> None:
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())

    async def plan(self, plan: RunPlan, on_exit: OnExit) -> PreloadResult:
        """Make the fork server load the run's plan: scenario, data and so on; return the result.

        `on_exit` is called for every node whose process ends.

        Raises:
            InputError: the plan can't be carried out: data missing, parts that do not fit.
            RunError: the fork server broke.
        """
        self._on_exit = on_exit
        self._begin_to_read()
        answer = await self._ask({"plan": asdict(plan)})
        if "error" in answer:
            raise InputError(answer["error"])
        return PreloadResult(**answer["ready"])

    async def spawn(self, command: Command) -> int:
        """Fork a process for the nodes of `command`; return its id. Raises RunError."""
        pid = int((await self._ask({"spawn": asdict(command)}))["spawned"]["pid"])
        self.processes[pid] = command
        if (ended := self._unclaimed.pop(pid)) is not None:
            asyncio.get_running_loop().call_soon(self._end, ended)  # who asked knows it by then
        return pid

    async def left_alone(self, grace_s: float) -> None:
        """Return when no process of a node runs any more, or after `grace_s` seconds."""
        with suppress(TimeoutError):
            async with noticed_timeout(grace_s):
                while self.processes and not self.ended.is_set():
                    self._changed.clear()
                    await self._changed.wait()

    async def hold(self, host: str, port: int, token: str) -> None:
        """Make the server open a lifeline to this supervisor: a connection whose end shows that the server is gone.

        Raises MachineError if it can't, or RunError.
        """
        self._begin_to_read()
        why = (await self._ask({"hold": {"host": host, "port": port, "token": token}}))["held"]
        if why:
            raise MachineError(
                f"it does not reach the supervisor at {host}, port {port}: {why}; ports are drawn by the system: open "
                "all of the supervisor's machine to those of its nodes"
            )

    async def give(self, node: NodeId, checkpoint: Path) -> None:
        """Send the server a file with the last `checkpoint` of `node`, in acknowledged parts. Raises RunError."""
        with checkpoint.open("rb") as file:
            first = True
            while data := file.read(GIVEN_BYTES):
                await self._ask({"file": {"node": node, "data": b64encode(data).decode(), "first": first}})
                first = False

    def kill(self, pid: int) -> None:
        """Have the fork server kill its child process `pid`."""
        self._tell({"kill": pid})

    async def aclose(self, grace_s: float = 5.0) -> None:
        """Order the fork server to end, wait for its end for up to `grace_s` seconds, and close."""
        if self._ending is not None:
            await asyncio.to_thread(self._ending.join, grace_s)
            return
        self._tell({"end": None})
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
        if self._reading is not None:
            with suppress(TimeoutError):
                async with noticed_timeout(grace_s):
                    await self.ended.wait()
        self.close()

    def abandon(self) -> None:
        """Give up a server that is gone or does not answer, without waiting for its end.

        A thread ends the local process that is connected to the server, such as `srun`. This may last until the system
        that started the server, such as Slurm, has noticed the server's end, too.
        """
        if self._ending is not None:
            return
        self._over()
        if self._reading is not None:
            self._reading.cancel()
        elif self.process.stdout is not None:
            self.process.stdout.close()
        self._ending = threading.Thread(target=end_child, args=(self.process,), daemon=True)
        self._ending.start()

    def close(self) -> None:
        """End the fork server and all its children; kill it at once if it was never asked anything."""
        if self._ending is not None:
            return
        if self._reading is None:
            self.process.kill()
        else:
            self._tell({"end": None})
        end_child(self.process)
        if self._reading is not None:
            self._reading.cancel()
        elif self.process.stdout is not None:
            self.process.stdout.close()

    def _tell(self, command: Json) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            self._over()

    async def _ask(self, command: Json) -> dict[str, Any]:
        async with self._asking:
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
                    self._end(ChildExit(**answer["exited"]))
                    continue
                if "spawned" in answer:
                    self._unclaimed[int(answer["spawned"]["pid"])] = None
                self._answers.put_nowait(answer)
        finally:
            self._over()
            transport.close()

    def _over(self) -> None:
        self.ended.set()
        self._changed.set()

    def _end(self, ended: ChildExit) -> None:
        if ended.pid in self._unclaimed:
            self._unclaimed[ended.pid] = ended
        elif (command := self.processes.pop(ended.pid, None)) is not None:
            self._changed.set()
            for node in command.nodes:
                self._on_exit(node, Exit(command.life.epoch, ended.code, ended.signal, ended.words))
