"""Fleets that stall, with their truths: why, who waits first and for whom, since when, and what would help.

Each was written down before the diagnosis was asked.
"""

from __future__ import annotations

from stall_terms import (
    ANSWERED,
    BEATS,
    DEADLINE,
    RESEND,
    SKIP,
    Stall,
    at,
    cut,
    full,
    gossip,
    lose,
    lost,
    meet,
    push,
    server,
    unreachable,
)

from netdfl.diagnosis.finding import Cause

HALVES = [[0, 1, 2, 3], [4, 5, 6, 7]]
BETWEEN = "between nodes 0 to 3 and nodes 4 to 7"
FOR_GOOD = (DEADLINE, SKIP)
TWO_SITES = {"links": {"a--b": {}}, "place": {"0..3": "a", "4..7": "b"}}
COPY_HELPS = (DEADLINE, RESEND, ANSWERED, SKIP)

STALLED = (
    # messages
    gossip(
        "data",
        lost(3, 2, since=at(5), says=["whose message was lost on 2->3"], remedies=FOR_GOOD),
        events=[lose(2, 3, 5)],
    ),
    gossip(
        "data while a link was down",
        lost(3, 2, since=at(3), says=["lost on 2->3", "the link was down"], remedies=COPY_HELPS),
        events=[cut("2->3", **{"for": "20ms"})],
    ),
    gossip(
        "data, heartbeats",
        lost(3, 2, since=at(5), says=["lost on 2->3"], remedies=FOR_GOOD),
        events=[lose(2, 3, 5)],
        failure_detector={"kind": "heartbeat", "every": "200ms", "misses": 3},
    ),
    full(
        "two of one waiter",
        lost(0, 2, 4, since=at(3), says=["2->0 and 4->0"], remedies=COPY_HELPS),
        events=[cut("2->0", **{"for": "9ms"}), cut("4->0", **{"for": "9ms"})],
    ),
    gossip(
        "two of two waiters",
        lost(0, 1, since=at(2), says=["1->0"], remedies=FOR_GOOD),
        lost(3, 4, since=at(2), says=["4->3"], remedies=FOR_GOOD),
        nodes=8,
        events=[lose(1, 0, 2), lose(4, 3, 2)],
    ),
    gossip("the last", lost(3, 2, since=at(7), says=["lost on 2->3"], remedies=FOR_GOOD), events=[lose(2, 3, 7)]),
    gossip(
        "the first of a hundred",
        lost(3, 2, 4, since=at(5), says=["2->3", "4->3"], remedies=FOR_GOOD),
        rounds=100,
        wait={"for": {"quorum": 1}, "deadline": "none"},
        events=[{"at_round": 5, "link": f"{src}->3", "loss": 1} for src in (2, 4)],
    ),
    gossip(
        "a step of several",
        lost(3, 2, since=None, says=["round 2", "lost on 2->3"], remedies=FOR_GOOD),
        algorithm={"name": "dfedsam_mgs", "gossip_steps": 3},
        events=[lose(2, 3, 2)],
    ),
    gossip(
        "a damaged one",
        lost(3, 2, since=at(3), says=["lost on 2->3", "damaged"], remedies=COPY_HELPS),
        events=[{"at": "40ms", "for": "5ms", "link": "2->3", "corrupt": 1}],
    ),
    push("a share", lost(2, 0, since=at(4), says=["lost on 0->2"], remedies=(DEADLINE, SKIP)), events=[lose(0, 2, 4)]),
    push(
        "an overlapping share",
        lost(2, 0, since=None, says=["lost on 0->2"], remedies=(DEADLINE, SKIP)),
        algorithm="osgp",
        events=[lose(0, 2, 4)],
    ),
    push(
        "a notice",
        lost(3, 2, since=at(5), says=["whose notice that nothing comes was lost on 2->3"], remedies=FOR_GOOD),
        topology={"kind": "full", "selection": {"kind": "random_k", "k": 1, "known": False}},
        wait={"for": "all", "deadline": "none", "announce": True},
        events=[lose(2, 3, 5)],
    ),
    meet(
        "a request",
        lost(1, 2, since=None, says=["its request never reached", "1->2"], remedies=(DEADLINE, RESEND, SKIP)),
        events=[cut("1->2", "30ms", **{"for": "20ms"})],
    ),
    meet(
        "a reply",
        lost(1, 2, since=None, says=["whose message was lost on 2->1"], remedies=(DEADLINE, RESEND, SKIP)),
        events=[cut("2->1", "30ms", **{"for": "20ms"})],
    ),
    server("a report", lost(4, 2, since=None, says=["lost on 2->4"], remedies=FOR_GOOD), events=[lose(2, 4, 3)]),
    server("a broadcast", lost(2, 4, since=None, says=["lost on 4->2"], remedies=FOR_GOOD), events=[lose(4, 2, 3)]),
    # nodes that are down
    gossip(
        "crash before it sends",
        unreachable([0, 3], [4], at(5), "node 4, which crashed and does not return"),
        gone=[4],
        events=[{"at_round": 5, "crash": 4}],
    ),
    gossip(
        "crash after it sent",
        unreachable([0, 3], [4], at(7), "in round 7 for node 4, which crashed"),
        gone=[4],
        events=[{"at": "76500us", "crash": 4}],
    ),
    gossip(
        "crash before it sends, back in a later round",
        unreachable([0, 3], [4], at(3), "crashed and, since its return, is past that round", remedies=FOR_GOOD),
        events=[{"at_round": 3, "crash": 4, "restart_after": "500ms", "state": "lost"}],
    ),
    gossip(
        "crash of two who have a neighbor in common",
        unreachable([0, 2, 4], [1, 3], at(3), "nodes 1 and 3, which crashed and do not return"),
        gone=[1, 3],
        events=[{"at_round": 3, "crash": [1, 3]}],
    ),
    gossip(
        "pause",
        unreachable([0, 3], [4], at(5), "node 4, which is paused and never resumed"),
        gone=[4],
        events=[{"at_round": 5, "pause": 4}],
    ),
    gossip(
        "pause that ends",
        unreachable(
            [0, 3], [4], at(3), "is paused until 20.04 s", "It is over;", over=True, remedies=(DEADLINE, BEATS)
        ),
        events=[{"at": "35ms", "for": "20s", "pause": 4}],
    ),
    gossip(
        "crash and pause",
        unreachable([0, 2, 4], [1, 3], at(5), "node 1 crashed and does not return; node 3 is paused and never resumed"),
        gone=[1, 3],
        events=[{"at_round": 5, "crash": 1}, {"at_round": 5, "pause": 3}],
    ),
    full(
        "crash, pause and loss",
        unreachable(
            [0, 2, 4],
            [1, 2, 3],
            at(4),
            "node 1 crashed and does not return; node 3 is paused and never resumed; ",
            "node 0 also lacks node 2's message of round 4, lost on 2->0",
            remedies=FOR_GOOD,
        ),
        gone=[1, 3],
        events=[{"at_round": 4, "crash": 1}, {"at_round": 4, "pause": 3}, lose(2, 0, 4)],
    ),
    gossip(
        "crash after its message was lost",
        Stall(Cause.LOST_MESSAGE, [3], [4], at(4), ["whose message was lost on 4->3"], FOR_GOOD),
        Stall(Cause.UNREACHABLE, [0], [4], at(5), ["node 4, which crashed"], (DEADLINE, BEATS, SKIP)),
        gone=[4],
        events=[lose(4, 3, 4), {"at_round": 5, "crash": 4}],
    ),
    meet(
        "asked while it is dead",
        unreachable([1, 3], [2], None, "node 2, which crashed"),
        gone=[2],
        events=[{"at": "30ms", "crash": 2}],
    ),
    meet(
        "asked while it is paused",
        unreachable([1, 3], [2], None, "node 2, which is paused"),
        gone=[2],
        events=[{"at": "30ms", "pause": 2}],
    ),
    server(
        "the server crashes",
        unreachable(
            [0, 1, 2, 3], [4], None, "node 4, which crashed", "No setting of the scenario would end it", remedies=()
        ),
        gone=[0, 1, 2, 3, 4],
        events=[{"at_round": 3, "crash": 4}],
    ),
    server(
        "a client is paused",
        unreachable([4], [2], None, "node 2, which is paused"),
        gone=[2],
        events=[{"at_round": 3, "pause": 2}],
    ),
    gossip(
        "pause while others have deadlines",
        *(
            unreachable([0, 3], [4], None, "paused and never resumed", "It is over.", over=True, remedies=())
            for _ in range(2)
        ),
        wait={"for": "all", "deadline": "3s"},
        rounds=7,
        gone=[4],
        events=[{"at_round": 5, "pause": 4}],
    ),
    # links that are down
    full(
        "a partition",
        unreachable(range(8), range(8), at(3), f"nothing passes {BETWEEN} for good (events[0])"),
        nodes=8,
        events=[{"at": "35ms", "partition": HALVES}],
    ),
    full(
        "a partition that dropped and healed",
        Stall(
            Cause.LOST_MESSAGE,
            range(8),
            range(8),
            at(3),
            [f"lost while nothing passed {BETWEEN} (events[0])"],
            COPY_HELPS,
        ),
        nodes=8,
        events=[{"at": "35ms", "for": "50ms", "partition": HALVES}],
    ),
    full(
        "a partition that holds and heals",
        unreachable(
            range(8), range(8), at(3), f"nothing passes {BETWEEN} until 60.03 s", over=True, remedies=(DEADLINE, BEATS)
        ),
        nodes=8,
        events=[{"at": "35ms", "for": "60s", "partition": HALVES, "mode": "down_hold"}],
    ),
    full(
        "a cut of a core link",
        unreachable(
            range(8), range(8), at(3), f"the core link a--b is down for good (events[0]); nothing passes {BETWEEN}. "
        ),
        nodes=8,
        underlay=TWO_SITES,
        events=[{"at": "35ms", "cut": "a--b"}],
    ),
    full(
        "a cut of a core link that dropped and healed",
        Stall(
            Cause.LOST_MESSAGE,
            range(8),
            range(8),
            at(3),
            [f"lost while the core link a--b was down and nothing passed {BETWEEN} (events[0])"],
            COPY_HELPS,
        ),
        nodes=8,
        underlay=TWO_SITES,
        events=[{"at": "35ms", "for": "50ms", "cut": "a--b"}],
    ),
    gossip(
        "a core link, one way, that two links of a ring cross",
        unreachable(
            [4, 7],
            [0, 3],
            at(3),
            "nodes 4 and 7 wait in round 3 for nodes 0 and 3, from which they are cut off: "
            "3->4 and 0->7 are down for good, as the core link a->b is (events[1])",
            remedies=FOR_GOOD,
        ),
        nodes=8,
        underlay=TWO_SITES,
        events=[{"at": "9s", "pause": 2, "for": "1s"}, {"at": "35ms", "cut": "a->b"}],
        topology={"kind": "ring"},
    ),
    gossip(
        "a partition of a ring",
        unreachable(
            [0, 1, 3, 4],
            [0, 1, 3, 4],
            at(3),
            "nothing passes between nodes 0, 4 and 5 and nodes 1 to 3 for good (events[0])",
        ),
        nodes=6,
        events=[{"at": "35ms", "partition": [[0, 4, 5], [1, 2, 3]]}],
    ),
    full(
        "one node cut off",
        unreachable(range(5), range(5), at(3), "between nodes 0 to 2 and 4 and node 3 for good"),
        events=[{"at": "35ms", "partition": [[3], [0, 1, 2, 4]]}],
    ),
    gossip(
        "one way",
        unreachable([3], [2], at(3), "from which it is cut off: 2->3 is down for good (events[0])", remedies=FOR_GOOD),
        events=[cut("2->3")],
    ),
    full(
        "one way, all of one node",
        unreachable(
            [0, 1, 2, 4], [3], at(3), "nothing passes from node 3 to nodes 0 to 2 and 4 for good", remedies=FOR_GOOD
        ),
        events=[cut(f"3->{node}") for node in (0, 1, 2, 4)],
    ),
    gossip(
        "two links far apart",
        unreachable([1], [0], at(3), "0->1 is down for good", remedies=FOR_GOOD),
        unreachable([5], [4], at(3), "4->5 is down for good", remedies=FOR_GOOD),
        nodes=8,
        events=[cut("0->1"), cut("4->5")],
    ),
    # room
    gossip(
        "a full mailbox",
        Stall(
            Cause.FLOW_CONTROL,
            [0],
            [1],
            None,
            ["mailbox of node 1, which is full", "It is over;"],
            ["wait.for: all"],
            over=True,
        ),
        nodes=2,
        rounds=1500,
        wait={"for": "none"},
        world={"kind": "simulated", "compute": "1ms", "stragglers": {"nodes": [1], "factor": 4000}},
    ),
    gossip(
        "the full mailbox of a paused node",
        unreachable(
            [0], [1], None, "the mailbox of node 1 is full, as node 1 is paused and never resumed", remedies=()
        ),
        nodes=2,
        rounds=1500,
        wait={"for": "none"},
        world={"kind": "simulated", "compute": "1ms"},
        gone=[1],
        events=[{"at": "50ms", "pause": 1}],
    ),
    # each other
    meet(
        "a circle",
        Stall(
            Cause.DEADLOCK,
            range(4),
            range(4),
            0.01,
            ["0 for 1, 1 for 2, 2 for 3 and 3 for 0"],
            ("algorithm.bipartite: true", SKIP, DEADLINE),
        ),
        bipartite=False,
    ),
    # what ends by itself
    gossip(
        "a straggler",
        Stall(
            Cause.STRAGGLER,
            [1, 3],
            [2],
            at(4),
            ["node 2 has been at work in round 4", "It is over;"],
            ["wait.for: any"],
            over=True,
        ),
        events=[{"at": "35ms", "for": "15ms", "slow_down": 2, "factor": 500}],
    ),
    gossip(
        "a late message",
        Stall(Cause.STRAGGLER, [3], [2], at(5), ["still on its way over 2->3"], ["wait.for: any"], over=True),
        events=[{"at_round": 5, "for_rounds": 1, "link": "2->3", "latency": "20s"}],
    ),
    gossip(
        "a loss that a deadline ends",
        Stall(Cause.LOST_MESSAGE, [3], [2], at(5), ["lost on 2->3", "It is over."], (), over=True),
        wait={"for": "all", "deadline": "20s"},
        events=[lose(2, 3, 5)],
    ),
)
