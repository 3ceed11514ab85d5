"""A trace of messages on their way: the classes and functions of netdfl that are called from outbox to mix.

A fleet of two nodes runs a few rounds. Traced are the rounds in the middle, in which edges, connections and caches are
there already. A call counts if a door of the way is below it on the stack, or if its module is at home on the way.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import netdfl
from netdfl.core.fates import Fate


class Name(NamedTuple):
    """A class or a function of a module."""

    file: str
    name: str


PACKAGE = str(Path(netdfl.__file__).parent)
ROUNDS, FIRST, LAST = 6, 2, 4
DOORS = {
    "Node.send",
    "Node.gather",
    "Alarm._wake",
    "Fabric.run",
    "EmulatedTransport._on_timer",
    "EmulatedTransport._report",
    "PeerSender._empty",
    "Stream._read",
    "Stream._on_timer",
    "DataServicer.push",
}
"""Where a message's way begins, and where it goes on by a timer, a task or a call of gRPC."""
HOME = ("links", "transport", "node/mailbox", "node/waits", "node/ledger", "node/not_finite")
LINKS: dict[str, Any] = {
    "delivered": {"latency": "5ms"},
    "lost": {"latency": "5ms", "loss": 1.0},
    "duplicate": {"latency": "5ms", "duplicate": 1.0},
    "framed": {"latency": "5ms"},
}
DIM, FEW = 512, 4
"""Numbers of a model whose body lies in shared memory, where an answer may need no stream; and of one in a frame."""


def scenario(world: Any, fate: str) -> dict[str, Any]:
    """Two nodes, whose messages all have the fate, or are delivered in frames of a few bytes.

    Waits end by a deadline where messages are lost, and nowhere else.
    """
    return {
        "schema": "netdfl/1",
        "name": fate,
        "nodes": 2,
        "rounds": ROUNDS,
        "world": world,
        "task": {"kind": "consensus", "dim": FEW if fate == "framed" else DIM},
        "algorithm": "dpsgd",
        "topology": {"kind": "full"},
        "links": {"default": LINKS[fate]},
        "wait": {"deadline": "50ms" if fate == "lost" else "60s"},
        "evaluation": {"every": ROUNDS},
    }


class Trace:
    """The names that were called in the rounds that are traced, each with its module's file."""

    def __init__(self) -> None:
        self.names: set[Name] = set()
        self._rounds: dict[int, int] = {}

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if event != "call":
            return
        thread, name = threading.get_ident(), frame.f_code.co_qualname
        if name == "Node.end_round" and "netdfl" in frame.f_code.co_filename:
            self._rounds[thread] = frame.f_locals["self"].round
        if FIRST <= self._rounds.get(thread, 0) < LAST and (called := name_of(frame)):
            if called.file.startswith(HOME) or has_passed_a_door(frame):
                self.names.add(called)


def name_of(frame: FrameType) -> Name | None:
    """The class whose method is called, or the function of a module; None for what is not netdfl's."""
    code, values = frame.f_code, frame.f_locals
    if code.co_filename.startswith(PACKAGE):
        name = code.co_qualname.partition(".")[0]
        return None if name.startswith("<") else Name(code.co_filename.removeprefix(PACKAGE + "/"), name)
    if code.co_filename != "<string>" or not values:
        return None
    made = values["_cls"] if "_cls" in values else type(next(iter(values.values())))  # a dataclass or a named tuple
    package, _, module = made.__module__.partition(".")
    return Name(module.replace(".", "/") + ".py", made.__name__) if package == "netdfl" else None


def has_passed_a_door(frame: FrameType) -> bool:
    """Whether a door of the way is on the stack."""
    below: FrameType | None = frame
    while below is not None:
        if below.f_code.co_qualname in DOORS and below.f_code.co_filename.startswith(PACKAGE):
            return True
        below = below.f_back
    return False


@contextmanager
def traced() -> Iterator[Trace]:
    """Trace this thread and all that it begins."""
    trace, before = Trace(), sys.getprofile()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        yield trace
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def names_on_the_way(world: Any, fate: str, where: Path) -> set[Name]:
    """All names that are called while the messages of a few rounds have a fate."""
    for each in Fate.ARRIVED:
        assert each.text  # which is composed once a process
    with traced() as trace:
        netdfl.run(scenario(world, fate), out=where, page=False)
    return trace.names
