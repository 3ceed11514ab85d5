"""The packet forwarder between the containers of a testbed.

`python -m netdfl.standalone.packets FOLDER` serves a testbed: packets pass freely until the nodes have agreed on their
start; then the link rules of FOLDER/scenario.yaml apply, until no node is left.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from netdfl.core.errors import InputError
from netdfl.core.rng import Streams
from netdfl.links.channel import Links
from netdfl.links.spec import LinksSpec
from netdfl.packets.forwarder import Forwarder, NanosecondTimer
from netdfl.packets.received import HandedOverForwarder, open_received
from netdfl.record.directory import RunDirectory
from netdfl.scenario.load import loads
from netdfl.standalone.record import NodeRecord
from netdfl.worlds.containers.compose import SOCKET

NODES, NETWORK, LINKS = "nodes", "network", "links.json"
"""Names in a testbed's folder: the folder of all nodes' folders, the network's folder, and the forwarder's counts."""
_LOOK_NS, _LEFT_ALONE_NS = 50_000_000, 5_000_000_000


def main(arguments: list[str]) -> int:
    """Serve the testbed in a folder; return the exit code."""
    folder = Path(arguments[0])
    try:
        serve(folder)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def serve(folder: Path) -> None:
    """Forward packets until no node is left, then write the counts. Raises InputError."""
    text = (folder / "scenario.yaml").read_text(encoding="utf-8")
    scenario = loads(text, file="scenario.yaml", directory=str(folder))
    ruled = open_received(scenario, folder / NETWORK / SOCKET)
    free = HandedOverForwarder(
        Links(LinksSpec({}, {}, scenario.num_nodes), Streams(0)), [], scenario.num_nodes, ruled.listener
    )
    signal.signal(signal.SIGTERM, lambda *_: _stop(free, ruled))
    looking = ForwarderMonitor(folder, free)
    looking.until(lambda: looking.start_ns is not None and time.monotonic_ns() >= looking.start_ns)
    if looking.start_ns is not None:
        ruled.take_over(free)
        ForwarderMonitor(folder, ruled, looking.start_ns).until(lambda: False)
    world: Any = scenario.world
    said = {"layer": world.loss_layer, "engine": ruled.name, "tcp": world.tcp}
    RunDirectory(folder / NETWORK).write_json(LINKS, said | ruled.counts())
    ruled.close()


def _stop(*forwarders: Forwarder) -> None:
    for forwarder in forwarders:
        forwarder.ended = True


class ForwarderMonitor:
    """A monitor that checks, while packets are forwarded, whether the nodes have started and ended."""

    def __init__(self, folder: Path, forwarder: HandedOverForwarder, start_ns: int | None = None) -> None:
        """Watch the nodes of `folder`, which record their start on the monotonic clock."""
        self.folder, self.forwarder, self.start_ns = folder, forwarder, start_ns
        self.came, self.seen_ns, self.timer = start_ns is not None, time.monotonic_ns(), NanosecondTimer()

    def until(self, over: Callable[[], bool]) -> None:
        """Forward packets until `over()` is true, or until all nodes have left."""
        self.timer.arm(time.monotonic_ns() + _LOOK_NS)
        self.forwarder.serve(self.start_ns or time.monotonic_ns(), self.timer.fd, lambda: self.look(over))

    def look(self, over: Callable[[], bool]) -> None:
        """End the forwarder if `over()` is true or all nodes have left; else schedule the next check."""
        self.timer.clear()
        now_ns = time.monotonic_ns()
        if self.forwarder.lines:
            self.came, self.seen_ns = True, now_ns
        if self.start_ns is None:
            self.start_ns = self.find_start()
        if over() or (self.came and now_ns - self.seen_ns > _LEFT_ALONE_NS):
            self.forwarder.ended = True
        soon = now_ns + _LOOK_NS
        self.timer.arm(min(soon, self.start_ns) if self.start_ns is not None and self.start_ns > now_ns else soon)

    def find_start(self) -> int | None:
        """Return the start on which the nodes agreed, in ns of the monotonic clock; None before a node recorded it."""
        for path in (self.folder / NODES).iterdir():
            with suppress(InputError):
                record = NodeRecord.read(path)
                if record is not None and record.start_monotonic_ns is not None:
                    return record.start_monotonic_ns
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
