"""Runs that a page started: child processes of the server, a few at a time, which it ends before it ends itself."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from netdfl.collection.finding import is_run
from netdfl.core.errors import InputError

MOST_AT_ONCE = 2
CHECK_S, BEGIN_S, END_S = 120.0, 120.0, 120.0
"""The most seconds for a check, for the begin of a run and for its end; on a busy machine an end takes over 20 s."""
TICK_S = 0.1
MOST_WORDS = 20_000
COMMAND = (
    "import os, runpy, signal, sys\n"
    "from netdfl.core.process import follow_parent\n"
    "follow_parent(signal.SIGINT)\n"  # where the server is killed, the run ends as by Ctrl-C
    "if os.getppid() != int(sys.argv.pop(1)): sys.exit(130)\n"
    "runpy.run_module('netdfl', run_name='__main__', alter_sys=True)\n"
)
"""The program of a child process: it runs a command of netdfl, and ends when its parent process does.

The first argument is the parent's process id.
"""


async def _netdfl(*arguments: str, words: int | IO[bytes]) -> Process:
    """Start a command of netdfl as a child process that ends with this process; its standard error goes to `words`."""
    command = [sys.executable, "-c", COMMAND, str(os.getpid()), *arguments]
    return await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=DEVNULL, stderr=words, start_new_session=True
    )


async def check(scenario: Path, overrides: Sequence[str]) -> str:
    """Return the errors that `netdfl validate` finds in a scenario; empty if it is valid.

    The user's modules are executed.
    """
    process = await _netdfl("validate", str(scenario), *_sets(overrides), words=PIPE)
    try:
        _, said = await asyncio.wait_for(process.communicate(), CHECK_S)
    except TimeoutError:
        return f"the check took longer than {CHECK_S:g} s, and was ended"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = said.decode(errors="replace")[:MOST_WORDS].strip()
    return "" if process.returncode == 0 else text or f"the check ended with {process.returncode}"


def _sets(overrides: Sequence[str]) -> list[str]:
    return [part for each in overrides for part in ("--set", each)]


def new_place(root: Path, name: str, seed: str) -> Path:
    """Return a new directory below `root` for a run of scenario `name`, named as `netdfl run` would name it."""
    stem = root / name / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{seed}"
    number = 1
    while True:
        path = stem if number == 1 else stem.with_name(f"{stem.name}-{number}")
        if not path.exists():
            return path
        number += 1


class RepeatedRuns:
    """The runs that this server started, at most `MOST_AT_ONCE` at a time."""

    def __init__(self) -> None:
        """Begin without runs."""
        self._going_on: set[Process] = set()
        self._beginning = asyncio.Lock()

    async def begin(self, scenario: Path, overrides: Sequence[str], out: Path) -> None:
        """Start a run in the directory `out`, and return once the first files are there.

        Raises InputError if too many of these runs are still running, or with the text of the command if that fails.
        """
        async with self._beginning:
            self._going_on = {each for each in self._going_on if each.returncode is None}
            if len(self._going_on) >= MOST_AT_ONCE:
                raise InputError(
                    f"{len(self._going_on)} runs that were begun here go on, which is the most at a time; "
                    "wait for one, or stop it"
                )
            with tempfile.TemporaryFile() as words:
                process = await _netdfl("run", str(scenario), *_sets(overrides), "--out", str(out), words=words)
                self._going_on.add(process)
                await self._begun(process, out, words)

    async def _begun(self, process: Process, out: Path, words: IO[bytes]) -> None:
        for _ in range(round(BEGIN_S / TICK_S)):
            if is_run(out):
                return
            if process.returncode is not None:
                words.seek(0)
                said = words.read(MOST_WORDS).decode(errors="replace").strip()
                raise InputError(said or f"the run ended with {process.returncode} before it began")
            await asyncio.sleep(TICK_S)
        await _end(process)
        raise InputError(f"the run had not begun after {BEGIN_S:g} s, and was ended")

    async def aclose(self) -> None:
        """End all runs as Ctrl-C does; after `END_S` seconds, kill those that have not ended."""
        await asyncio.gather(*map(_end, self._going_on))


async def _end(process: Process) -> None:
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    try:
        await asyncio.wait_for(process.wait(), END_S)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
