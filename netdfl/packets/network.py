"""The supervisor's hold on the packet process: one network of namespaces, from its making to its counts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from netdfl.core.errors import MachineError, RunError
from netdfl.core.types import Json, NodeId
from netdfl.packets.tun import NamespaceAddress

MOST_LATE_NS = 16_777_216
"""Where one packet in a hundred was later than this, the emulation missed what it promised."""


class PacketNetwork:
    """Namespaces with a scenario's links between them, made and held by a process of their own."""

    def __init__(self, scenario: Path, directory: Path, *, trusted: bool = False, socket: str = "") -> None:
        """Begin to make the network of the scenario in the file `scenario`; `directory` is where it came from.

        `trusted` says that the caller keeps the load within what the engine carries, whatever the rates add up to.
        Nodes that make their own devices hand them over at `socket`.
        """
        self.process = subprocess.Popen(
            [sys.executable, "-m", "netdfl.packets.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.engine = ""
        self.places: Mapping[NodeId, NamespaceAddress] = {}
        more = {"socket": socket} if socket else {}
        self._tell({"scenario": str(scenario), "directory": str(directory), "trusted": trusted, **more})

    def ready(self) -> None:
        """Wait until it is made. Raises MachineError with what this machine lacks."""
        answer = self._answer()
        if "error" in answer:
            raise MachineError(answer["error"])
        self.engine = answer["ready"]["engine"]
        self.places = {int(node): place for node, place in answer["ready"]["places"].items()}

    def begin(self, start_ns: int) -> None:
        """Let packets flow from `start_ns` of the monotonic clock on, which is the schedule's zero."""
        self._tell({"start_ns": start_ns})

    def end(self) -> dict[str, Any]:
        """Stop; what became of the packets. Raises RunError where the process is dead."""
        self._tell({"stop": True})
        counts: dict[str, object] = self._answer()["counts"]
        return counts

    def wait(self) -> None:
        """Return when the process has ended."""
        self.process.wait()

    def close(self) -> None:
        """End the process, and with it every device and namespace that nobody lives in."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it is dead, and what it did not read is lost
            self.process.stdin.close()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _tell(self, command: Json) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise RunError("the process that carries the packets ended; its own words are above") from None

    def _answer(self) -> Json:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RunError("the process that carries the packets ended; its own words are above")
        answer: Json = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        self.ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
