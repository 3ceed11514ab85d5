"""Planted stalls in the simulated world: each gets its cause and its roots, and no other finding."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from wait_first import wait_first_loop

from netdfl.algorithms.families import FAMILIES
from netdfl.diagnosis.finding import Cause
from netdfl.record.directory import RunDirectory
from netdfl.record.status import Phase
from netdfl.running.supervise import supervise
from netdfl.scenario.load import loads

HERE = Path(__file__).parent


class Expected(NamedTuple):
    """A finding: its cause, its roots, its culprits (None: not said), whether it ended."""

    cause: Cause
    roots: Sequence[int]
    culprits: Sequence[int] | None = None
    over: bool = False


class Planted(NamedTuple):
    """A scenario in a few words, and all that is to be found in it."""

    name: str
    keys: Mapping[str, Any]
    expected: Sequence[Expected] = ()


def gossip(name: str, *expected: Expected, nodes: int = 5, **keys: Any) -> Planted:
    """A synchronous gossip without a deadline on a ring."""
    base: dict[str, Any] = {"nodes": nodes, "rounds": 12, "algorithm": "dpsgd", "topology": "ring"}
    return Planted(name, base | {"wait": {"for": "all", "deadline": "none"}} | keys, expected)


def crash(name: str, *expected: Expected, **keys: Any) -> Planted:
    """A gossip whose nodes learn of no crash, unless `keys` say otherwise."""
    return gossip(name, *expected, **{"failure_detector": {"kind": "none"}} | keys)


def asking(
    name: str, asks: Mapping[int, tuple[Sequence[int], int]], *expected: Expected, nodes: int = 6, **keys: Any
) -> Planted:
    """Nodes that wait for others before they send, on a full graph."""
    written = repr({node: (tuple(sources), need) for node, (sources, need) in asks.items()})
    algorithm = {"name": "wait_first:wait_first", "asks": written}
    return gossip(name, *expected, nodes=nodes, algorithm=algorithm, topology="full", rounds=4, **keys)


def cycle(size: int) -> dict[int, tuple[Sequence[int], int]]:
    return {i: ([(i + 1) % size], 1) for i in range(size)}


def deadlock(*roots: int, over: bool = False) -> Expected:
    return Expected(Cause.DEADLOCK, roots, over=over)


def lost(waiter: int, source: int, over: bool = False) -> Expected:
    return Expected(Cause.LOST_MESSAGE, [waiter], [source], over)


def lose(src: int, dst: int, round: int) -> dict[str, Any]:
    return {"at_round": round, "for_rounds": 1, "link": f"{src}->{dst}", "loss": 1}


def down(roots: Sequence[int], culprits: Sequence[int], over: bool = False) -> Expected:
    return Expected(Cause.UNREACHABLE, roots, culprits, over)


BEATS = {"kind": "heartbeat", "every": "200ms", "misses": 3}
SYMMETRIC = {"kind": "exponential", "symmetric": True}

CASES = (
    # cycles of AND waits
    *(asking(f"cycle of {n}", cycle(n), deadlock(*range(n)), nodes=n + 1) for n in (2, 3, 4, 5, 8)),
    asking("cycle with a tail", cycle(3) | {3: ([0], 1), 4: ([3], 1)}, deadlock(0, 1, 2)),
    asking("cycle with a chord", {0: ([1], 1), 1: ([2, 0], 2), 2: ([3], 1), 3: ([0], 1)}, deadlock(0, 1)),
    asking("two cycles", cycle(2) | {2: ([3], 1), 3: ([2], 1)}, deadlock(0, 1), deadlock(2, 3)),
    asking("AND wait with one live sender of two", cycle(2) | {0: ([1, 5], 2)}, deadlock(0, 1)),
    asking(
        "everybody waits for everybody",
        {i: ([j for j in range(4) if j != i], 3) for i in range(4)},
        deadlock(0, 1),
        nodes=4,
    ),
    # OR waits
    asking("OR knot", {i: ([j for j in range(3) if j != i], 1) for i in range(3)}, deadlock(0, 1, 2)),
    asking("OR cycle", {i: ([(i + 1) % 4], 1) for i in range(4)}, deadlock(0, 1, 2, 3)),
    *(asking(f"OR wait with the live sender {n}", {0: ([1, n], 1), 1: ([0], 1)}) for n in (2, 3, 5)),
    asking("OR knot with one way out", {0: ([1, 2], 1), 1: ([0, 2], 1), 2: ([0, 1, 4], 1)}),
    # k of n
    asking(
        "2 of 3 in a knot with one live",
        {i: ([j for j in range(4) if j != i], 2) for i in range(3)},
        deadlock(0, 1, 2),
        nodes=5,
    ),
    asking("2 of 3 with two live", {0: ([1, 3, 4], 2), 1: ([0, 3, 4], 2)}),
    asking(
        "3 of 4 with two live", {0: ([1, 2, 4, 5], 3), 1: ([0, 2, 4, 5], 3), 2: ([0, 1, 4, 5], 3)}, deadlock(0, 1, 2)
    ),
    # a lost message, the last one included
    *(gossip(f"lost in round {r}", lost(3, 2), events=[lose(2, 3, r)]) for r in (0, 5, 11)),
    gossip("lost on a full graph", lost(1, 4), topology="full", events=[lose(4, 1, 3)]),
    gossip("lost on an exponential graph", lost(0, 1), nodes=8, topology=SYMMETRIC, events=[lose(1, 0, 7)]),
    gossip("two lost in one round", lost(0, 1), lost(3, 4), nodes=8, events=[lose(1, 0, 2), lose(4, 3, 2)]),
    gossip(
        "lost below several steps",
        lost(3, 2),
        algorithm={"name": "dfedsam_mgs", "gossip_steps": 3},
        events=[lose(2, 3, 4)],
    ),
    gossip("lost with a deadline is waited out", wait={"for": "all", "deadline": "300ms"}, events=[lose(2, 3, 5)]),
    gossip("lost below a quorum", wait={"for": {"quorum": 1}, "deadline": "none"}, events=[lose(2, 3, 5)]),
    # crashes
    crash("crash in a round", down([0, 3], [4]), events=[{"at_round": 5, "crash": 4}]),
    crash("crash by the clock", down([1, 3], [2]), events=[{"at": "31ms", "crash": 2}]),
    crash("crash of two", down([0, 2], [1]), down([3, 5], [4]), nodes=6, events=[{"at_round": 3, "crash": [1, 4]}]),
    crash("crash that an oracle tells", failure_detector={"kind": "oracle"}, events=[{"at_round": 5, "crash": 4}]),
    crash(
        "crash with a restart that comes too late for what was sent meanwhile",
        down([0, 3], [4], over=True),
        Expected(Cause.LOST_MESSAGE, [4], [0, 3]),
        events=[{"at_round": 5, "crash": 4, "restart_after": "30s", "state": "kept"}],
    ),
    # partitions
    gossip(
        "partition for good",
        Expected(Cause.UNREACHABLE, [0, 1, 2, 3]),
        nodes=4,
        events=[{"at": "35ms", "partition": [[0, 1], [2, 3]]}],
    ),
    gossip(
        "partition that holds messages and heals",
        Expected(Cause.UNREACHABLE, [0, 1, 2, 3], over=True),
        nodes=4,
        events=[{"at": "35ms", "for": "20s", "partition": [[0, 1], [2, 3]], "mode": "down_hold"}],
    ),
    gossip(
        "one link cut one way",
        down([3], [2]),
        events=[{"at": "35ms", "link": "2->3", "state": "down_drop"}],
    ),
    gossip(
        "a cut that drops and heals leaves a lost message",
        lost(3, 2),
        events=[{"at": "35ms", "for": "100ms", "link": "2->3", "state": "down_drop"}],
    ),
    gossip(
        "a link that holds messages from the start",
        down([1], [0]),
        nodes=4,
        links={"default": {"latency": "1ms"}, "0->1": {"state": "down_hold"}},
    ),
    # heartbeats: nothing is ever idle, and what they name is not waited for
    crash("crash that heartbeats tell", failure_detector=BEATS, events=[{"at_round": 5, "crash": 4}]),
    gossip("lost among heartbeats", lost(3, 2), failure_detector=BEATS, events=[lose(2, 3, 5)]),
    asking("cycle among heartbeats", cycle(3), deadlock(0, 1, 2), failure_detector=BEATS),
    # acknowledged delivery sends again by itself
    gossip(
        "lost and sent again",
        delivery={"kind": "acknowledged"},
        events=[{"at": "35ms", "for": "100ms", "link": "2->3", "state": "down_drop"}],
    ),
    gossip(
        "cut for longer, and sent again",
        down([3], [2], over=True),
        delivery={"kind": "acknowledged"},
        events=[{"at": "35ms", "for": "5s", "link": "2->3", "state": "down_drop"}],
    ),
    # stragglers
    gossip("pause", down([0, 3], [4], over=True), events=[{"at": "35ms", "for": "20s", "pause": 4}]),
    gossip(
        "slow down",
        Expected(Cause.STRAGGLER, [1, 3], [2], over=True),
        events=[{"at": "35ms", "for": "15ms", "slow_down": 2, "factor": 500}],
    ),
    gossip(
        "slow from the start",
        world={"kind": "simulated", "compute": "10ms", "stragglers": {"nodes": [1], "factor": 20}},
    ),
    # phantoms: messages in flight are no deadlock
    gossip("slow links", links={"default": {"latency": "200ms"}}),
    gossip(
        "one message on its way for long",
        Expected(Cause.STRAGGLER, [3], [2], over=True),
        events=[{"at_round": 5, "for_rounds": 1, "link": "2->3", "latency": "20s"}],
    ),
    # livelock
    gossip(
        "messages in circles",
        Expected(Cause.LIVELOCK, [0, 1, 2]),
        nodes=3,
        algorithm={"name": "dfedsam_mgs", "gossip_steps": 100_000_000},
        links={"default": {"latency": "500ms"}},
    ),
    # flow control
    gossip(
        "a mailbox that is full",
        Expected(Cause.FLOW_CONTROL, [0], [1], over=True),
        nodes=2,
        rounds=1500,
        wait={"for": "none"},
        world={"kind": "simulated", "compute": "1ms", "stragglers": {"nodes": [1], "factor": 4000}},
    ),
    # recovery
    gossip("skip", lost(3, 2, over=True), wait={"deadline": "none", "on_stall": "skip"}, events=[lose(2, 3, 5)]),
    gossip(
        "resend, of rounds 3 and 4",
        *(lost(3, 2, over=True) for _ in range(2)),
        wait={"deadline": "none", "on_stall": "resend"},
        events=[{"at": "35ms", "for": "100ms", "link": "2->3", "state": "down_drop"}],
    ),
    gossip(
        "resend in vain",
        lost(3, 2),
        wait={"deadline": "none", "on_stall": "resend"},
        events=[lose(2, 3, 5)],
    ),
    *(
        gossip(
            f"resend a {kind}",
            lost(1, 2, over=True),
            nodes=4,
            algorithm={"name": "ad_psgd", "order": "successor", "bipartite": True},
            wait={"deadline": "none", "on_stall": "resend"},
            events=[{"at": "30ms", "for": "20ms", "link": "{}->{}".format(*edge), "state": "down_drop"}],
        )
        for kind, edge in (("request", (1, 2)), ("reply", (2, 1)))
    ),
    asking("skip out of a cycle", cycle(3), *(deadlock(0, 1, 2, over=True) for _ in range(3))),
    # healthy fleets
    gossip("no fault", nodes=8, topology=SYMMETRIC),
    gossip(
        "no fault, noisy compute",
        world={"kind": "simulated", "compute": {"kind": "lognormal", "mean": "10ms", "jitter": "30ms"}},
    ),
    gossip(
        "no fault, some loss and deadlines",
        wait={"deadline": "200ms"},
        links={"default": {"latency": "5ms", "loss": 0.1}},
    ),
)


def write(case: Planted) -> str:
    base = {"schema": "netdfl/1", "name": "planted", "seed": 3, "task": {"kind": "consensus", "dim": 2}}
    world = {"world": {"kind": "simulated", "compute": "10ms"}, "links": {"default": {"latency": "1ms"}}}
    keys = base | world | dict(case.keys) | {"evaluation": {"every": 1000}}
    if "skip" in case.name and "algorithm" in case.keys and "wait_first" in str(case.keys["algorithm"]):
        keys["wait"] = {"deadline": "none", "on_stall": "skip"}
    return json.dumps(keys)


TOLD = "a mailbox that is full"
"""What `scenarios/faults/flow_control.yaml` plants, too."""


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.soak] if case.name == TOLD else [], id=case.name) for case in CASES]
)
def test_planted_stall_is_named(case: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "wait_first", wait_first_loop)  # type: ignore[arg-type]
    scenario = loads(write(case), directory=HERE)
    directory = RunDirectory.create(tmp_path, "planted", 0)
    outcome = supervise(scenario, directory)
    result = outcome.stalled
    found = [*result["deadlocks"], *result["stalls"]]
    said = "\n".join(f"{f['cause']} {f['roots']} {f['culprits']} over={f['over']}: {f['text']}" for f in found)
    assert len(found) == len(case.expected), said
    for expected in case.expected:
        matching = [
            f
            for f in found
            if (f["cause"], f["roots"], f["over"]) == (expected.cause, list(expected.roots), expected.over)
            and (expected.culprits is None or f["culprits"] == list(expected.culprits))
        ]
        assert matching, said
    finished = all(node.phase is Phase.FINISHED for node in outcome.status.nodes.values())
    assert finished == (all(e.over for e in case.expected) and "crash" not in case.name), said
    assert bool(result["deadlocks"]) == any(e.cause is Cause.DEADLOCK and not e.over for e in case.expected)


def test_there_are_forty_cases() -> None:
    assert len(CASES) >= 40
