"""The fork server: a process that has loaded torch and the data, and forks every node from itself.

`python -m netdfl.worlds.forkserver` reads one JSON command per line and answers in the same way:
    {"plan": {...}}                      -> {"ready": {"gpus": 0, ...}} or {"error": "...", "code": 2}
    {"spawn": {"nodes": [3], ...}}       -> {"spawned": {"nodes": [3], "pid": 4711}}
    {"look": {"facts": {}}}              -> {"looked": {...}}: the answer of a child about this machine
    {"file": {"node": 3, "data": "..."}} -> {"written": n}: a part of the node's last checkpoint, from before a restart
    {"hold": {"host": "...", ...}}       -> {"held": ""}, or why not: a connection whose end is this process's end
    {"kill": pid}
    {"end": null}
    (a child ends)                       -> {"exited": {"pid": 4711, "code": 0, "signal": null, "words": "..."}}
The end of its input ends it and all its children, so a dead supervisor leaves no orphans. Children that
lose their supervisor write their records and end by themselves: they get a moment for that, unless the input
ended with `end`, or the supervisor is on another machine and would not see it. They ask the kernel to be killed should
the fork server die. It never imports grpc (a fork after grpc was used hangs) and never touches CUDA (GPUs are counted
in a child that is thrown away).
"""

from __future__ import annotations

import gc
import json
import os
import re
import selectors
import signal
import socket
import sys
import tempfile
import time
import traceback
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netdfl.core.errors import InputError, NetdflError
from netdfl.core.files import open_append
from netdfl.core.process import die_with_parent, follow_parent, leave
from netdfl.core.whose import theirs

if TYPE_CHECKING:
    from netdfl.host.blueprint import Blueprint
    from netdfl.host.plan import Command, RunPlan
    from netdfl.transport.shared_memory.memory import SharedMemory

LEAVE_S = 10.0
"""Seconds that nodes get to write their records once their supervisor has died, on a busy machine."""


def main() -> None:
    """Serve commands until the input ends."""
    from netdfl.worlds import preload

    _Answers.keep_apart()
    follow_parent()
    gc.disable()  # what is imported stays: looking through it costs a tenth, now and as this process ends
    preload.warm()
    gc.freeze()
    gc.enable()
    follow_parent(0)  # from now on, the end of the input says that the supervisor died
    with ExitStack() as folders:
        _Forks(folders).serve()
    leave()


class _Forks:
    """The state of the fork server: its child processes and, once loaded, the plan of the run."""

    loaded: tuple[Blueprint, RunPlan]

    def __init__(self, folders: ExitStack) -> None:
        """Prepare to notice ends of child processes; closing `folders` removes the temporary folders made later."""
        self.folders = folders
        self.memory: SharedMemory | None = None
        self.children: dict[int, Path] = {}  # with their logs
        self.line: socket.socket | None = None
        self.ended = False
        self.wake_r, self.wake_w = os.pipe()
        os.set_blocking(self.wake_w, False)
        os.set_blocking(self.wake_r, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def serve(self) -> None:
        """Answer commands and report ends of children, until the input ends."""
        with selectors.DefaultSelector() as self.selector:
            self.selector.register(0, selectors.EVENT_READ)
            self.selector.register(self.wake_r, selectors.EVENT_READ)
            lines = _Lines()
            while not lines.ended:
                ready = {key.fd for key, _ in self.selector.select()}
                if self.line is not None and self.line.fileno() in ready:
                    break
                if self.wake_r in ready:
                    with suppress(BlockingIOError):
                        os.read(self.wake_r, 4096)
                    self.reap()
                if 0 in ready:
                    for command in lines.read():
                        self.obey(command)
        if not self.ended and self.line is None:
            self.let_leave()
        self.kill_all()

    def obey(self, command: dict[str, Any]) -> None:
        """Carry out one command of the supervisor, such as `{"spawn": ...}`."""
        from netdfl.host.plan import Command, RunPlan, read

        if "plan" in command:
            self.make_plan(read(RunPlan, command["plan"]))
        elif "spawn" in command:
            self.spawn(read(Command, command["spawn"]))
        elif "file" in command:
            self.take(**command["file"])
        elif "look" in command:
            self.look(command["look"])
        elif "hold" in command:
            self.hold(**command["hold"])
        elif "end" in command:
            self.ended = True
        elif "kill" in command and command["kill"] in self.children:
            os.kill(command["kill"], signal.SIGKILL)

    def make_plan(self, plan: RunPlan) -> None:
        """Load what all nodes of the run share, such as data and models, once before any fork."""
        try:
            if plan.luggage:
                folder = tempfile.TemporaryDirectory(prefix="netdfl-", ignore_cleanup_errors=True)
                plan = plan.settled(Path(self.folders.enter_context(folder)))
                signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the engine's: the supervisor gets it too, and decides
            blueprint = plan.blueprint()
        except InputError as error:
            return say({"error": str(error), "code": 2})
        except NetdflError as error:
            return say({"error": str(error), "code": 4})
        except Exception as error:
            if (told := theirs(error)) is None:
                raise
            return say({"error": str(told), "code": 2})
        if plan.share_memory:
            from netdfl.host.memory import shared_memory

            self.memory = shared_memory(blueprint, plan.share_memory)
        self.loaded = blueprint, plan
        gc.collect()
        gc.freeze()
        problem = blueprint.problem
        if plan.tells_versions:
            _ = blueprint.versions  # once for all children
        say({"ready": {"gpus": count_gpus(), "partition": problem.partition(), "notes": list(problem.notes)}})

    def hold(self, host: str, port: int, token: str) -> None:
        """Open a lifeline, by which the supervisor notices the end of this process or of its machine."""
        from netdfl.worlds.machines.lifeline import hold

        try:
            self.line = hold(host, port, token)
        except OSError as error:
            return say({"held": error.strerror or str(error)})
        self.selector.register(self.line, selectors.EVENT_READ)
        say({"held": ""})

    def take(self, node: int, data: str, first: bool) -> None:
        """Write `data`, a part of a node's checkpoint in base64; `first`: begin the file anew, else append."""
        from netdfl.record.directory import CHECKPOINTS

        file = Path(self.loaded[1].directory) / CHECKPOINTS / f"{node:03d}.safetensors"
        file.parent.mkdir(exist_ok=True)
        with file.open("wb" if first else "ab") as opened:
            written = opened.write(b64decode(data))
        say({"written": written})

    def look(self, question: dict[str, object]) -> None:
        """Answer a question about this machine in a child process, so that this process stays unchanged."""

        def work() -> int:
            try:
                from netdfl.host.facts import answer

                answer(question, lambda found: say({"looked": found}))
            except BaseException as error:
                say({"looked": {"failed": f"{type(error).__name__}: {error}"}})
            return 0

        self.fork(work, Path(os.devnull))

    def spawn(self, command: Command) -> None:
        """Fork a process for the nodes of `command`."""
        pid = self.fork(lambda: self.become(command), self.log_of(command))
        say({"spawned": {"nodes": command.nodes, "pid": pid}})

    def fork(self, work: Callable[[], int], log: Path) -> int:
        """Fork a child that calls `work` and exits with its result; return its id. `log` is the child's log file."""
        sys.stdout.flush()
        me = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                die_with_parent(me)
                if self.line is not None:
                    self.line.close()  # else it would outlive this one's parent
                os.setsid()
                signal.set_wakeup_fd(-1)
                code = work()
            except BaseException:
                traceback.print_exc()
            finally:
                with suppress(OSError, ValueError):
                    sys.stdout.flush()
                    sys.stderr.flush()
                os._exit(code)
        self.children[pid] = log
        return pid

    def log_of(self, command: Command) -> Path:
        """Return the path of the log for the process of `command`."""
        name = "-".join(f"{n:03d}" if n >= 0 else "evaluator" for n in command.nodes[:2])
        plan, epoch = self.loaded[1], command.life.epoch
        return Path(plan.directory) / "logs" / f"{name}{f'-{epoch}' if epoch and not plan.shares_disk else ''}.log"

    def become(self, command: Command) -> int:
        """Detach a child from the server's terminal and pipes, and run the nodes; return the exit code."""
        blueprint, plan = self.loaded
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        redirect(self.log_of(command))
        os.close(_Answers.fd)
        os.close(self.wake_r)
        os.close(self.wake_w)
        if command.namespace is not None:
            from netdfl.packets.netns import enter

            enter(command.namespace)
        from netdfl.host.process import run_process

        return run_process(blueprint, plan, command, self.memory)

    def reap(self) -> None:
        """Report to the supervisor the child processes that have ended."""
        while self.children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            log = self.children.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            name = signal.Signals(-code).name if code < 0 else None
            say({"exited": {"pid": pid, "code": max(code, 0), "signal": name, "words": tail(log)}})

    def let_leave(self) -> None:
        """Wait until the children have ended by themselves, at most `LEAVE_S` seconds."""
        until = time.monotonic() + LEAVE_S
        while self.children and time.monotonic() < until:
            time.sleep(0.05)
            self.reap()

    def kill_all(self) -> None:
        """Kill every child."""
        for pid in self.children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class _Lines:
    """A reader of whole JSON lines from standard input."""

    def __init__(self) -> None:
        self.rest, self.ended = b"", False

    def read(self) -> Iterator[dict[str, object]]:
        data = os.read(0, 1 << 16)
        self.ended = not data
        *lines, self.rest = (self.rest + data).split(b"\n")
        yield from (json.loads(line) for line in lines)


class _Answers:
    """The output for answers to the supervisor, kept apart from text that a user's own code prints."""

    fd = 1

    @classmethod
    def keep_apart(cls) -> None:
        """Reserve the original standard output for answers, and redirect printed text to standard error."""
        cls.fd = os.dup(1)
        os.dup2(2, 1)


def say(answer: dict[str, object]) -> None:
    """Write one line to the supervisor; ignore a broken pipe, because the end of the input follows."""
    line = json.dumps(answer).encode() + b"\n"
    with suppress(BrokenPipeError):
        while line:
            line = line[os.write(_Answers.fd, line) :]


_RAISED = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")
"""The start of a traceback's line that names the exception."""
_LONG = 12
"""The most lines of an exception's text; CUDA's errors have advice of several lines after what happened."""


def tail(log: Path) -> str:
    """Return the last three lines of a process's log, for an error message.

    If the log ends with an exception whose text is longer, return the first three lines of that text.
    """
    text = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
    raised = max((place for place, line in enumerate(text[-_LONG:]) if _RAISED.match(line)), default=None)
    first = -3 if raised is None else min(-3, raised - min(_LONG, len(text)))
    return " | ".join(text[first:][:3])


def redirect(log: Path) -> None:
    """Send the process's output to `log`, line by line, and close its input."""
    log.parent.mkdir(parents=True, exist_ok=True)
    fd = open_append(log)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
    os.close(null)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # for whoever reads along, and whatever ends the process


def count_gpus() -> int:
    """Return the number of GPUs of this machine, counted in a child, so that this process never initializes CUDA."""
    import torch

    if not torch.backends.cuda.is_built():
        return 0
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, bytes([min(torch.cuda.device_count(), 255)]))
        os._exit(0)
    os.close(write)
    count = os.read(read, 1)
    os.close(read)
    os.waitpid(pid, 0)
    return count[0] if count else 0


if __name__ == "__main__":
    main()
