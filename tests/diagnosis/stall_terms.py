"""What the scenarios of `stalled` and `truths` are written with: fleets in a word, what is found, and what would help.

A round takes 10 ms of computing and 1 ms on the way, so that round r begins at 11 r ms and its waits at 11 r + 10 ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from netdfl.diagnosis.finding import Cause

BASE: dict[str, Any] = {
    "schema": "netdfl/1",
    "name": "stalled",
    "seed": 3,
    "task": {"kind": "consensus", "dim": 2},
    "world": {"kind": "simulated", "compute": "10ms"},
    "links": {"default": {"latency": "1ms"}},
    "evaluation": {"every": 1000},
}
GOSSIP: dict[str, Any] = {"nodes": 5, "rounds": 8, "algorithm": "dpsgd", "topology": "ring"}
SERVER: dict[str, Any] = {"nodes": 4, "algorithm": "fedavg", "topology": "star"}
NO_DEADLINE = {"for": "all", "deadline": "none"}

DEADLINE = "wait.deadline: auto"
SKIP = "wait.on_stall: skip"
RESEND = "wait.on_stall: resend"
ANSWERED = "delivery: acknowledged"
BEATS = "failure_detector: heartbeat"


class Stall(NamedTuple):
    """One finding, all of it: `since_s` is None where it is not said here; `says` is in its text, in this order."""

    cause: Cause
    roots: Sequence[int]
    culprits: Sequence[int]
    since_s: float | None
    says: Sequence[str] = ()
    remedies: Sequence[str] = ()
    over: bool = False


class Stalled(NamedTuple):
    """A scenario in a few words, and all that is to be said of it. `gone`: nodes that never come to their end."""

    name: str
    keys: Mapping[str, Any]
    stalls: Sequence[Stall]
    gone: Sequence[int] = ()


def says(text: str, parts: Sequence[str]) -> bool:
    """Whether `parts` are in `text`, in their order."""
    for part in parts:
        _, found, text = text.partition(part)
        if not found:
            return False
    return True


def gossip(name: str, *stalls: Stall, gone: Sequence[int] = (), **keys: Any) -> Stalled:
    """A synchronous gossip of five nodes on a ring, without a deadline and without a failure detector."""
    return Stalled(name, GOSSIP | {"wait": NO_DEADLINE, "failure_detector": {"kind": "none"}} | keys, stalls, gone)


def full(name: str, *stalls: Stall, **keys: Any) -> Stalled:
    return gossip(name, *stalls, **{"topology": "full"} | keys)


def push(name: str, *stalls: Stall, **keys: Any) -> Stalled:
    """Push-sum on a directed graph: node i sends to i + 1, i + 2 and i + 4."""
    base = {"nodes": 6, "algorithm": "sgp", "topology": {"kind": "exponential"}, "delivery": "plain"}
    return gossip(name, *stalls, **base | keys)


def server(name: str, *stalls: Stall, **keys: Any) -> Stalled:
    """Four clients and a server, which is node 4."""
    return gossip(name, *stalls, **SERVER | keys)


def meet(name: str, *stalls: Stall, bipartite: bool = True, **keys: Any) -> Stalled:
    """Exchanges of two on a ring of four: nodes 1 and 3 ask, 0 and 2 answer."""
    algorithm = {"name": "ad_psgd", "order": "successor", "bipartite": bipartite}
    return gossip(name, *stalls, **{"nodes": 4, "algorithm": algorithm} | keys)


def at(round: int) -> float:
    """When the waits of a round begin, in seconds."""
    return (11 * round + 10) / 1000


def lose(src: int, dst: int, round: int) -> dict[str, Any]:
    return {"at_round": round, "for_rounds": 1, "link": f"{src}->{dst}", "loss": 1}


def cut(link: str, at: str = "35ms", **more: Any) -> dict[str, Any]:
    return {"at": at, "link": link, "state": "down_drop"} | more


def lost(waiter: int, *sources: int, since: float | None, says: Sequence[str], remedies: Sequence[str]) -> Stall:
    return Stall(Cause.LOST_MESSAGE, [waiter], sources, since, says, remedies)


def unreachable(
    roots: Sequence[int], culprits: Sequence[int], since: float | None, *says: str, over: bool = False, **more: Any
) -> Stall:
    return Stall(Cause.UNREACHABLE, roots, culprits, since, says, more.get("remedies", (DEADLINE, BEATS, SKIP)), over)
