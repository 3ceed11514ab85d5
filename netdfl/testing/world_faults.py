"""Checks of runs whose nodes fail, for every world (way to execute a fleet), and their scenarios.

The scenarios are small: four nodes agree on a few numbers, because the checks are about the fate of nodes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from netdfl.core.types import NodeId
from netdfl.record.judge import WELL, ExitCode
from netdfl.running.judged import FinishedRun
from netdfl.testing.world_bench import Bench, Keys, events, nodes_of, rounds_played, until

GOSSIP: Keys = {
    "nodes": 4,
    "rounds": 8,
    "task": {"kind": "consensus", "dim": 10},
    "algorithm": "dpsgd",
    "topology": "full",
    "evaluation": {"every": 8},
}
PUSH: Keys = GOSSIP | {
    "rounds": 14,
    "algorithm": "sgp",
    "topology": {"kind": "random_push", "out_neighbors": 2},
    "delivery": {"kind": "acknowledged", "timeout": "150ms"},
    "failure_detector": {"kind": "none"},
}
RING: Keys = GOSSIP | {
    "topology": "ring",
    "links": {"default": {"latency": "5ms"}},
    "wait": {"for": "all", "deadline": "none"},
    "events": [{"at_round": 3, "for_rounds": 1, "link": "2->3", "loss": 1}],
}
SERVER: Keys = GOSSIP | {
    "algorithm": "fedavg",
    "topology": "star",
    "links": {"default": {"latency": "1ms"}},
    "wait": {"deadline": "none"},
}
KEPT = {"state": "kept", "restart_after": "300ms"}
LATE_ROUNDS = 120
"""The rounds of the fleet that a node joins late: enough for it to take part long before the last round.

The sum of push-sum weights at the end lacks the weight in messages that are still in flight.
"""

CRASHES: Mapping[str, Keys] = {
    "crashes": GOSSIP
    | {
        "wait": {"deadline": "300ms"},
        "events": [
            {"at_round": 2, "crash": 1},
            {"at_round": 4, "crash": 2, "rejoin": "replay", **KEPT},
            {"at_round": 5, "for": "100ms", "pause": 0},
            {"at_round": 5, "slow_down": 3, "factor": 2.0},
        ],
    },
    "late": GOSSIP
    | {
        "rounds": LATE_ROUNDS,
        "algorithm": "sgp",
        "links": {"default": {"latency": "20ms"}},
        "wait": {"deadline": "5s"},
        "events": [{"at_round": 5, "join": 3}],
    },
    "after-the-last-round": GOSSIP
    | {
        "wait": {"deadline": "100ms"},
        "events": [
            {"at_round": 4, "pause": 0, "for": "4s"},
            {"at": "3s", "crash": 1},
            {"at": "3s", "crash": 2, **KEPT},
        ],
    },
}
RETURNS: Mapping[str, Keys] = {
    "kept": PUSH
    | {
        "wait": {"deadline": "none"},
        "links": {"default": {"latency": "10ms", "loss": 0.2}},
        "events": [{"at_round": 4, "crash": 2, **KEPT}],
    },
    "lost": PUSH
    | {
        "wait": {"deadline": "5s"},
        "events": [{"at_round": 4, "crash": 3, "restart_after": "300ms", "state": "lost", "rejoin_weight": 1}],
    },
}
SERVERS: Mapping[str, Keys] = {
    "server-crashed": SERVER | {"events": [{"at_round": 3, "crash": 4}]},
    "server-returned": SERVER | {"events": [{"at_round": 3, "crash": 4, **KEPT}]},
}
STALLS: Mapping[str, Keys] = {
    "lost-message": RING | {"expect": {"stall": "some"}},
    "skipped": RING | {"wait": {"for": "all", "deadline": "none", "on_stall": "skip"}},
    "deadlock": RING
    | {
        "algorithm": {"name": "ad_psgd", "order": "successor", "bipartite": False},
        "events": [],
        "expect": {"deadlock": "some"},
    },
}
LONG: Keys = GOSSIP | {"rounds": 50, "links": {"default": {"latency": "40ms"}}, "evaluation": {"every": 1000}}
KILLED: Mapping[str, Keys] = {
    "told": LONG | {"wait": {"deadline": "none"}, "failure_detector": {"kind": "oracle"}},
    "untold": LONG | {"wait": {"deadline": "100ms"}, "failure_detector": {"kind": "none"}},
}


def crash_is_no_death(bench: Bench) -> None:
    """Check that a scripted crash ends only its node, that the other nodes are informed, and that the run ends well."""
    crashed = bench.fleets(CRASHES)["crashes"]
    assert crashed.exit_code == ExitCode.PASS, crashed.result["reasons"]
    assert crashed.result["died"] == []
    assert events(crashed.run, "died", "failed") == []
    assert [(node, round) for _, node, round, _ in events(crashed.run, "crash")] == [(1, 2), (2, 4)]
    phases = {each["node"]: each["phase"] for each in nodes_of(crashed.path)}
    assert phases == {0: "finished", 1: "crashed", 2: "finished", 3: "finished"}
    assert rounds_played(crashed.run, 1) == [0, 1]
    assert rounds_played(crashed.run, 0) == rounds_played(crashed.run, 3) == list(range(8))
    told = {(node, details["peer"]) for _, node, _, details in events(crashed.run, "gone")}
    assert told >= {(0, 1), (2, 1), (3, 1), (0, 2), (3, 2)}


def crash_and_return_with_kept_state(bench: Bench) -> None:
    """Check that a node that restarts with its state continues in the round of its crash, and loses no push-sum weight.

    It sends the messages of that round and of all later ones.
    """
    replayed = bench.fleets(CRASHES)["crashes"].run
    assert [(node, details) for _, node, _, details in events(replayed, "restart")] == [(2, {"epoch": 1})]
    assert rounds_played(replayed, 2) == list(range(8))
    lives = replayed.rows("SELECT DISTINCT round, epoch FROM messages WHERE src = 2")
    assert {(round, epoch) for round, epoch in lives if round < 4} == {(round, 0) for round in range(4)}
    assert {epoch for round, epoch in lives if round >= 4} <= {1}
    kept = bench.fleets(_lossy(bench, RETURNS))["kept"]
    assert kept.result["verdict"] in WELL, kept.result["reasons"]
    sent = kept.run.rows("SELECT epoch, round FROM messages WHERE src = 2 AND kind = 'data'")
    assert {round for epoch, round in sent if epoch == 0} >= set(range(4))
    assert {round for epoch, round in sent if epoch == 1} >= set(range(4, 14))
    assert abs(kept.result["weight_sum"] - 1) < 1e-12


def crash_and_return_with_lost_state(bench: Bench) -> None:
    """Check that a node that restarts without its state gets a neighbor's model.

    The result must state the push-sum weight that was lost, and the weight that the node began with.
    """
    lost = bench.fleets(_lossy(bench, RETURNS))["lost"]
    (restart,) = lost.result["restarts"]
    assert restart["model_of"] in (0, 1, 2)
    assert restart["rejoined_in"] < 14
    left = 4 - restart["lost_weight"] + restart["new_weight"]
    limbo = lost.run.rows("SELECT sum(value) FROM metrics WHERE name = 'limbo_weight' AND round = 13")[0][0] or 0
    assert left - limbo - 1e-9 <= 4 * lost.result["weight_sum"] <= left + 1e-9


def crash_after_the_last_round(bench: Bench) -> None:
    """Check that nodes that crash after their last round do not count as unfinished, whether they restart or not."""
    late = bench.fleets(CRASHES)["after-the-last-round"]
    assert late.exit_code == ExitCode.PASS, late.result["reasons"]
    assert late.result["died"] == late.result["unfinished"] == []
    assert {node for _, node, _, _ in events(late.run, "crash")} == {1, 2}
    assert [node for _, node, _, _ in events(late.run, "restart")] == [2]
    phases = {each["node"]: each["phase"] for each in nodes_of(late.path)}
    assert phases == {0: "finished", 1: "crashed", 2: "finished", 3: "finished"}
    assert all(rounds_played(late.run, node) == list(range(8)) for node in range(4))


def crash_of_the_server(bench: Bench) -> None:
    """Check that all rounds are done if a crashed server restarts; if it does not, that the stall names it as cause."""
    ended = bench.fleets(SERVERS)
    returned, crashed = ended["server-returned"], ended["server-crashed"]
    assert returned.exit_code == ExitCode.PASS, returned.result["reasons"]
    assert all(rounds_played(returned.run, node) == list(range(8)) for node in range(5))
    assert crashed.exit_code == ExitCode.FAIL
    assert _causes(crashed) == [("unreachable", [0, 1, 2, 3], [4])]


def late_join(bench: Bench) -> None:
    """Check that a node that joins late has a neighbor's model and push-sum weight 1, and does not count as crashed."""
    late = bench.fleets(CRASHES)["late"]
    assert late.exit_code == ExitCode.PASS, late.result["reasons"]
    found = events(late.run, "crash", "restart", "died", "failed")
    assert found == [], found
    assert [(node, details) for _, node, _, details in events(late.run, "join")] == [(3, {"epoch": 1})]
    (joined,) = late.result["restarts"]
    played = rounds_played(late.run, 3)
    assert played == list(range(joined["rejoined_in"], LATE_ROUNDS))
    assert len(played) < LATE_ROUNDS - 5
    assert (joined["state"], joined["model_of"] in (0, 1, 2)) == ("none", True)
    assert abs(late.result["weight_sum"] - 1) < 1e-12


def pause_and_resume(bench: Bench) -> None:
    """Check that a paused node continues at the end of its pause and finishes, and that a slow-down is recorded."""
    crashed = bench.fleets(CRASHES)["crashes"]
    found = [(kind, node) for kind, node, _, _ in events(crashed.run, "pause", "resume", "slow_down")]
    assert sorted(found) == [("pause", 0), ("resume", 0), ("slow_down", 3)]
    assert found.index(("pause", 0)) < found.index(("resume", 0))
    (since_s,), (until_s,) = crashed.run.rows("SELECT at_s FROM events WHERE kind IN ('pause', 'resume') ORDER BY at_s")
    assert until_s - since_s > 0.099
    assert rounds_played(crashed.run, 0) == list(range(8))


def kill_of_a_node(bench: Bench) -> None:
    """Check that a node whose process is killed from outside counts as dead, and that the other nodes finish.

    The reason of its death must name the signal.
    """
    with bench.going(KILLED) as ending:
        for name, each in ending.items():
            path = bench.folder / name
            until(partial(_runs, path, 1), each.done)
            bench.options.kill(path, 1)
    for each in ending.values():
        killed = each.result()
        assert killed.exit_code == ExitCode.FAIL, killed.result["reasons"]
        (death,) = killed.result["died"]
        assert death["node"] == 1
        assert "SIGKILL" in death["reason"]
        assert all(rounds_played(killed.run, node) == list(range(50)) for node in (0, 2, 3))


def stall_named_and_ended(bench: Bench) -> None:
    """Check that a stall of the fleet ends the run, and that its cause, roots and the nodes' call stacks are stored."""
    ended = bench.fleets(_lossy(bench, STALLS))
    lost, deadlock = ended["lost-message"], ended["deadlock"]
    assert _causes(lost) == [("lost_message", [3], [2])]
    kept = json.loads((lost.path / "stalls" / "000.json").read_text(encoding="utf-8"))
    assert "waits.py" in kept["nodes"][3]["stack"]
    assert _causes(deadlock) == [("deadlock", [0, 1, 2, 3], [0, 1, 2, 3])]
    assert [each.result["verdict"] for each in (lost, deadlock)] == ["pass", "pass"]


def stall_skipped(bench: Bench) -> None:
    """Check that a lost message does not stall nodes that may skip it (`on_stall: skip`), and that they finish."""
    skipped = bench.fleets(_lossy(bench, STALLS))["skipped"]
    assert skipped.exit_code == ExitCode.PASS, skipped.result["reasons"]
    assert _causes(skipped) == []
    assert {details["cause"] for _, _, _, details in events(skipped.run, "recovered")} == {"lost_message"}
    assert all(rounds_played(skipped.run, node) == list(range(8)) for node in range(4))


def _lossy(bench: Bench, plays: Mapping[str, Keys]) -> Mapping[str, Keys]:
    """Return the scenarios `plays` with this world's options by which links lose whole messages and not packets."""
    return {name: keys | {"world": bench.world | bench.options.on_messages} for name, keys in plays.items()}


def _runs(path: Path, node: NodeId) -> bool:
    own = [each for each in nodes_of(path) if each["node"] == node]
    return any(each["phase"] == "running" and each["round"] >= 1 for each in own)


def _causes(finished: FinishedRun) -> list[tuple[str, list[NodeId], list[NodeId]]]:
    found = [*finished.result["deadlocks"], *finished.result["stalls"]]
    return [(each["cause"], each["roots"], each["culprits"]) for each in found if not each["over"]]
