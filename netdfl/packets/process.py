"""The packet process of a fleet in namespaces: creates them, carries or shapes packets, and counts them.

`python -m netdfl.packets.process` reads one JSON command per line and answers in the same way:
    {"scenario": PATH, "directory": DIR, "trusted": false}, or with "socket" where containers hand over devices
                                          -> {"ready": {"engine": "tun", "places": {"0": {...}}}}
                                             or {"error": "..."}
    {"start_ns": 4711}                       packets flow from this moment of the monotonic clock on
    {"stop": true}                        -> {"counts": {...}}, and it ends
The process ends when its input does, and every device and namespace that it made ends with it: so a dead supervisor
leaves nothing behind. It never changes devices that existed before it, and imports neither torch nor grpc.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from netdfl.core.errors import InputError
from netdfl.core.process import allow_open_files, follow_parent
from netdfl.core.types import Json


def main() -> None:
    """Create and serve the network of one run, by commands from standard input."""
    follow_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    commands = _commands()
    plan = next(commands, None)
    if plan is None:
        return
    try:
        engine = _open(plan)
    except InputError as error:
        return _say({"error": str(error)})
    _hurry()
    _say({"ready": {"engine": engine.name, "places": engine.places}})
    start = next(commands, None)
    if start is None or "start_ns" not in start:
        return

    def obey() -> None:
        engine.ended = True

    try:
        engine.serve(start["start_ns"], 0, obey)
    except InputError as error:
        sys.exit(str(error))
    if "stop" in (next(commands, None) or {}):
        _say({"counts": engine.counts()})
    engine.close()


def _open(plan: Json) -> Any:
    from netdfl.packets.engines import open_engine
    from netdfl.packets.netns import leave_host
    from netdfl.scenario.load import loads

    text = Path(plan["scenario"]).read_text(encoding="utf-8")
    scenario = loads(text, file="scenario.yaml", directory=plan["directory"])
    allow_open_files()  # two descriptors a node
    if "socket" in plan:
        from netdfl.packets.received import open_received

        return open_received(scenario, Path(plan["socket"]))
    leave_host()
    return open_engine(scenario, trusted=plan["trusted"])


def _hurry() -> None:
    """Give this process a real-time priority if permitted, because packets that wait for the process become late."""
    gc.collect()
    gc.freeze()
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))


def _commands() -> Iterator[Json]:
    """Yield the supervisor's commands, read without buffering, so that polling notices further ones."""
    rest = b""
    while data := os.read(0, 1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        yield from (json.loads(line) for line in lines)


def _say(answer: Json) -> None:
    with suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
