"""Scenarios with truths that were written first: fleets that get to their end, and fleets that don't."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stall_terms import GOSSIP, NO_DEADLINE, SERVER, lose

from netdfl.diagnosis.finding import Cause


class Held(NamedTuple):
    """A stall that is left at the end: its cause, who waits first, and for whom."""

    cause: Cause
    roots: Sequence[int]
    culprits: Sequence[int]


class Truth(NamedTuple):
    """A scenario in a few words, and what is true of it.

    `held`: the stalls at its end; none: every node that the scenario lets live ends its last round. `unfinished`:
    what the verdict says of nodes that did not, in part.
    """

    name: str
    keys: Mapping[str, Any]
    held: Sequence[Held] = ()
    unfinished: str = ""


def gossip(name: str, *held: Held, unfinished: str = "", **keys: Any) -> Truth:
    """A synchronous gossip of five nodes on a ring, without a deadline."""
    return Truth(name, GOSSIP | {"rounds": 10, "wait": NO_DEADLINE} | keys, held, unfinished)


def push(name: str, *held: Held, **keys: Any) -> Truth:
    """Push-sum on an exponential graph."""
    return gossip(name, *held, **{"algorithm": "sgp", "topology": {"kind": "exponential", "symmetric": True}} | keys)


def server(name: str, *held: Held, unfinished: str = "", **keys: Any) -> Truth:
    """Four clients and a server, which is node 4."""
    return gossip(name, *held, unfinished=unfinished, **SERVER | keys)


def meet(name: str, *held: Held, **keys: Any) -> Truth:
    """Exchanges of two, of four nodes on a ring; an odd node asks."""
    return gossip(name, *held, **{"nodes": 4, "algorithm": {"name": "ad_psgd", "bipartite": True}} | keys)


QUORUM = {"for": {"quorum": 3}, "deadline": "none"}
BEATS = {"kind": "heartbeat"}
FAST_BEATS = {"kind": "heartbeat", "every": "200ms", "misses": 3}
NOBODY = {"kind": "none"}
ANSWERED = {"kind": "acknowledged"}
SUMS = {"kind": "running_sums"}


def lossy(*edges: str, **more: Any) -> dict[str, Any]:
    return {"default": {"latency": "1ms"}, **{edge: {"loss": 1} for edge in edges}} | more


def lost(waiter: int, source: int) -> Held:
    return Held(Cause.LOST_MESSAGE, [waiter], [source])


def unreachable(roots: Sequence[int], culprits: Sequence[int]) -> Held:
    return Held(Cause.UNREACHABLE, roots, culprits)


def nobody_sends(waiter: int, *sources: int) -> Held:
    return Held(Cause.DEADLOCK, [waiter], sources)


DROPPED = nobody_sends(2, 3)  # node 3 took node 2 for gone and sends it nothing more, and node 2 hears node 3 beat

TRUTHS = (
    # a failure detector ends the wait
    *(
        gossip(f"{what}, {way}", *held, failure_detector=beats, links=lossy(link))
        for way, link, held in (("one dead direction", "2->3", [DROPPED]), ("dead both ways", "2--3", []))
        for what, beats in (("heartbeats", BEATS), ("quick heartbeats", FAST_BEATS))
    ),
    gossip(
        "heartbeats, a direction that is down",
        DROPPED,
        failure_detector=BEATS,
        links={"default": {"latency": "1ms"}, "2->3": {"state": "down_drop"}},
    ),
    gossip(
        "heartbeats, a direction that dies later",
        DROPPED,
        failure_detector=BEATS,
        events=[{"at": "35ms", "link": "2->3", "loss": 1}],
    ),
    gossip(
        "heartbeats, a direction that dies while nodes compute for long",
        DROPPED,
        failure_detector=BEATS,
        rounds=4,
        world={"kind": "simulated", "compute": "40s"},
        events=[{"at": "30s", "link": "2->3", "loss": 1}],
    ),
    gossip("heartbeats, a crash", failure_detector=BEATS, events=[{"at_round": 3, "crash": 2}]),
    gossip("an oracle, a crash", events=[{"at_round": 3, "crash": 2}]),
    gossip("an oracle tells later of who lost a message", events=[lose(2, 3, 3), {"at": "20s", "crash": 2}]),
    gossip("heartbeats, one message lost", lost(3, 2), failure_detector=BEATS, events=[lose(2, 3, 3)]),
    meet("heartbeats, a request's direction dead", lost(3, 2), failure_detector=BEATS, links=lossy("3->2")),
    meet("heartbeats, a reply's direction dead", DROPPED, failure_detector=BEATS, links=lossy("2->3")),
    server("heartbeats, a report's direction dead", nobody_sends(2, 4), failure_detector=BEATS, links=lossy("2->4")),
    # what is lost is sent again
    push(
        "acknowledged, the sender down meanwhile",
        delivery=ANSWERED,
        failure_detector=NOBODY,
        events=[
            {"at": "20ms", "for": "100ms", "link": "2->3", "loss": 1},
            {"at": "60ms", "crash": 2, "restart_after": "5s", "state": "kept"},
        ],
    ),
    gossip(
        "acknowledged gossip, the sender down meanwhile",
        delivery=ANSWERED,
        failure_detector=NOBODY,
        events=[
            {"at": "20ms", "for": "100ms", "link": "2->3", "loss": 1},
            {"at": "60ms", "crash": 2, "restart_after": "5s", "state": "kept"},
        ],
    ),
    push("acknowledged under loss", delivery=ANSWERED, links={"default": {"latency": "5ms", "loss": 0.2}}),
    push(
        "acknowledged, a cut of eight seconds",
        delivery=ANSWERED,
        events=[{"at": "35ms", "for": "8s", "link": "2->3", "state": "down_drop"}],
    ),
    push(
        "acknowledged, given up",
        lost(3, 2),
        delivery=ANSWERED | {"attempts": 3},
        links=lossy("2->3"),
    ),
    push("running sums, a message lost", delivery=SUMS, events=[lose(2, 3, 3)]),
    push(
        "running sums, a message lost, a fixed deadline",
        delivery=SUMS,
        events=[lose(2, 3, 3)],
        wait={"for": "all", "deadline": "1h"},
        expect={"virtual_duration_s": {"at_most": 10}},
    ),
    push(
        "running sums, both messages of a pair lost",
        Held(Cause.LOST_MESSAGE, [0, 1], [0, 1]),
        nodes=2,
        topology="full",
        delivery=SUMS,
        events=[lose(0, 1, 3), lose(1, 0, 3)],
    ),
    push("running sums, the last message lost", lost(3, 2), delivery=SUMS, events=[lose(2, 3, 9)]),
    # rounds that take long
    *(
        gossip(
            f"{steps} steps of {latency}",
            nodes=3,
            rounds=3,
            algorithm={"name": "dfedsam_mgs", "gossip_steps": steps},
            links={"default": {"latency": latency}},
        )
        for steps, latency in ((40, "1s"), (100, "500ms"), (2, "40s"))
    ),
    gossip("rounds of a minute", rounds=4, world={"kind": "simulated", "compute": "60s"}),
    gossip(
        "one slow node",
        rounds=4,
        world={"kind": "simulated", "compute": "1s", "stragglers": {"nodes": [2], "factor": 100}},
    ),
    gossip("slow from some time on", events=[{"at": "35ms", "for": "40s", "slow_down": 2, "factor": 5000}]),
    gossip(
        "noisy compute", world={"kind": "simulated", "compute": {"kind": "lognormal", "mean": "1s", "jitter": "9s"}}
    ),
    gossip("a pause", events=[{"at": "35ms", "for": "40s", "pause": 2}]),
    gossip(
        "a pause among heartbeats",
        nobody_sends(2, 1, 3),
        failure_detector=FAST_BEATS,
        events=[{"at": "35ms", "for": "40s", "pause": 2}],
    ),
    gossip(
        "large messages on slow links", links={"default": {"rate": "1kbit"}}, task={"kind": "consensus", "dim": 500}
    ),
    gossip(
        "a pause for good among heartbeats",
        unfinished="node 2 is paused and never resumed, in round 3 of 10",
        failure_detector=FAST_BEATS,
        events=[{"at": "35ms", "pause": 2}],
    ),
    gossip(
        "acknowledged, every other message lost", delivery=ANSWERED, links={"default": {"latency": "20ms", "loss": 0.5}}
    ),
    gossip(
        "beats in the queue of a slow link",
        failure_detector=FAST_BEATS,
        task={"kind": "consensus", "dim": 500},
        links={"default": {"rate": "8kbit"}},
    ),
    gossip(
        "what is stale is mixed", wait={"for": "none", "stale": 3}, links={"default": {"latency": "25ms", "loss": 0.2}}
    ),
    # partitions
    gossip(
        "a partition that holds and heals",
        events=[{"at": "35ms", "for": "60s", "partition": [[0, 1], [2, 3, 4]], "mode": "down_hold"}],
    ),
    gossip(
        "a partition that drops and heals, acknowledged",
        delivery=ANSWERED,
        events=[{"at": "35ms", "for": "8s", "partition": [[0, 1], [2, 3, 4]]}],
    ),
    gossip(
        "a partition, deadlines",
        wait={"deadline": "auto"},
        events=[{"at": "35ms", "for": "10s", "partition": [[0, 1], [2, 3, 4]]}],
    ),
    gossip(
        "a partition among heartbeats",
        failure_detector=FAST_BEATS,
        events=[{"at": "35ms", "for": "10s", "partition": [[0, 1], [2, 3, 4]]}],
    ),
    # quorums
    gossip("a quorum of one, a dead link", wait={"for": {"quorum": 1}, "deadline": "none"}, links=lossy("2->3")),
    gossip(
        "a quorum, a crash",
        topology="full",
        failure_detector=NOBODY,
        wait=QUORUM,
        events=[{"at_round": 3, "crash": 2}],
    ),
    push(
        "whoever sends", topology={"kind": "random_push", "out_neighbors": 2}, wait={"for": "all", "deadline": "none"}
    ),
    # a server
    server("a server"),
    server("a quorum of clients", wait=QUORUM),
    server("a server that returns", events=[{"at_round": 3, "crash": 4, "restart_after": "5s", "state": "kept"}]),
    server(
        "a server that returns, heartbeats",
        failure_detector=FAST_BEATS,
        events=[{"at_round": 3, "crash": 4, "restart_after": "5s", "state": "kept"}],
    ),
    server("a client crashes", events=[{"at_round": 3, "crash": 2}]),
    *(
        server(
            f"a server that crashed for good, {detector['kind']}",
            unreachable([0, 1, 2, 3], [4]),
            failure_detector=detector,
            events=[{"at_round": 3, "crash": 4}],
        )
        for detector in ({"kind": "oracle"}, FAST_BEATS, NOBODY)
    ),
    server("a client's broadcast lost, a quorum", lost(2, 4), wait=QUORUM, events=[lose(4, 2, 3)]),
    server(
        "a server that crashed for good, deadlines",
        unfinished="node 4, the server,",
        wait={"deadline": "auto"},
        events=[{"at_round": 3, "crash": 4}],
    ),
    server(
        "a quorum, and a client too slow for it",
        unfinished="node 2",
        wait=QUORUM,
        world={"kind": "simulated", "compute": "10ms", "stragglers": {"nodes": [2], "factor": 10000}},
    ),
    server(
        "a quorum, and a client that is paused until long after its server's end",
        wait={"for": {"quorum": 3}, "deadline": "5m"},
        events=[{"at_round": 3, "pause": 2, "for": "10m"}],
    ),
    server("broadcasts lost at random, deadlines", wait={"deadline": "auto"}, links={"default": {"loss": 0.2}}),
    server(
        "a quorum, and a client a little slower",
        wait=QUORUM,
        rounds=20,
        world={"kind": "simulated", "compute": "100ms", "stragglers": {"nodes": [2], "factor": 3}},
    ),
    server("half of the clients take part", topology={"kind": "star", "participation": 0.5}),
    server("a server that pauses", events=[{"at": "35ms", "for": "40s", "pause": 4}]),
    # stalls
    gossip(
        "crash without a detector",
        unreachable([1, 3], [2]),
        failure_detector=NOBODY,
        events=[{"at_round": 3, "crash": 2}],
    ),
    meet("a request lost", lost(3, 2), events=[lose(3, 2, 4)]),
    gossip(
        "a livelock",
        Held(Cause.LIVELOCK, [0, 1, 2], [0, 1, 2]),
        nodes=3,
        algorithm={"name": "dfedsam_mgs", "gossip_steps": 100_000_000},
        links={"default": {"latency": "500ms"}},
    ),
)
