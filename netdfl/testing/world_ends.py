"""Checks of whole runs, for every world (way to execute a fleet): records, interrupts, resumption, full disks."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest import SkipTest

import netdfl
from netdfl.core.errors import InputError
from netdfl.host.models import read_snapshot
from netdfl.record.judge import WELL, ExitCode
from netdfl.record.run import Run
from netdfl.running.judged import FinishedRun
from netdfl.running.run import resume
from netdfl.testing.world_bench import Bench, Keys, events, nodes_of, rounds_played
from netdfl.testing.world_faults import GOSSIP, PUSH

QUICKSTART: Keys = {
    "nodes": 4,
    "rounds": 3,
    "task": {"dataset": {"name": "digits", "partition": {"kind": "dirichlet", "alpha": 0.3}}, "model": "mlp"},
    "algorithm": {"name": "dfedavg", "lr": 0.1, "local_epochs": 2},
    "topology": {"kind": "random_sym", "neighbors": 2},
    "wait": {"deadline": "none"},
    "evaluation": {"every": 1, "keep_models": True},
    "expect": {"test_accuracy": {"at_least": 0.4}},
}
"""The scenario of the README, with fewer nodes and rounds."""
AGREEING: Keys = {key: QUICKSTART[key] for key in ("nodes", "rounds", "wait", "evaluation")} | {
    "task": {"kind": "consensus", "dim": 10}
}
LEARNING: Mapping[str, Keys] = {
    "quickstart": QUICKSTART,
    "push-sum": AGREEING
    | {"algorithm": {"name": "osgp", "lr": 0.1}, "topology": {"kind": "random_push", "out_neighbors": 2}},
    "a-server": AGREEING
    | {"algorithm": {"name": "fedavg", "lr": 0.1}, "topology": {"kind": "star", "participation": 0.5}},
}
"""Scenarios, one for each family of algorithms. Only one trains, as that needs torch; the others average vectors."""
NUMBERS = "SELECT node, round, name, value FROM metrics WHERE name NOT LIKE '%\\_s' ESCAPE '\\' ORDER BY ALL"
LONG: Keys = GOSSIP | {"rounds": 1_000_000, "evaluation": {"every": 1_000_000}}
RESUMED: Keys = PUSH | {
    "delivery": {"kind": "acknowledged", "timeout": "300ms"},
    "wait": {"deadline": "none"},
    "links": {"default": {"latency": "30ms"}},
    "checkpoint": {"every": 1},
    "evaluation": {"every": 10},
}


def quickstart(bench: Bench) -> None:
    """Check that the README's first scenario, with fewer nodes and rounds, learns and meets its expectations."""
    ended = bench.fleets(LEARNING)["quickstart"]
    assert (ended.exit_code, ended.result["verdict"]) == (ExitCode.PASS, "pass"), ended.result["reasons"]
    assert ended.result["world"] == bench.world["kind"]


def same_numbers_as_simulated(bench: Bench) -> None:
    """Check that over perfect links the metrics and models equal the simulation's, bit for bit."""
    for name, finished in bench.fleets(LEARNING).items():
        path, keys = finished.path, LEARNING[name] | {"world": {"kind": "simulated"}}
        expected = netdfl.run(bench.scenario(name, keys), out=bench.folder / f"{name}-simulated", page=False).path
        ours, theirs = (netdfl.open_run(each).rows(NUMBERS) for each in (path, expected))
        assert len(ours) > 10
        other = sorted(set(ours) ^ set(theirs), key=str)
        assert ours == theirs, f"{name}: the figures differ, and first these: {other[:6]}"
        assert kept_models(path) == kept_models(expected), f"{name}: the models differ"


def repeats_itself(bench: Bench) -> None:
    """Check that a second run of the same scenario has the same event log."""
    for name, finished in bench.fleets(LEARNING).items():
        again = netdfl.run(bench.scenario(name, LEARNING[name]), out=bench.folder / f"{name}-again", page=False)
        assert finished.result["event_log_hash"] == again.result["event_log_hash"]


def whole_record(bench: Bench) -> None:
    """Check that the run directory is complete: scenario, graph, every message, round and event, every node's end."""
    run = bench.fleets(LEARNING)["quickstart"].run
    assert netdfl.load(run.path / "scenario.yaml").name == "quickstart"
    assert run.graph is not None
    assert run.graph["num_nodes"] == 4
    assert run.partition is not None
    assert [each["phase"] for each in nodes_of(run.path)] == ["finished"] * 4
    assert [(kind, details) for kind, _, _, details in events(run, "start")] == [("start", {"nodes": 4})]
    assert len(events(run, "finish")) == 1
    assert [rounds_played(run, node) for node in range(4)] == [[0, 1, 2]] * 4
    assert sorted(run.rows("SELECT count(*), fate FROM messages GROUP BY fate"))[-1] == (24, "delivered")
    assert run.result["messages"]["sent"] == run.result["messages"]["delivered"] == 24
    assert (run.path / "store").is_dir()
    assert not (run.path / "snapshots").exists()


def two_at_once(bench: Bench) -> None:
    """Check that fleets of one process that run at the same time do not disturb each other."""
    ended = bench.fleets(LEARNING)
    assert all(each.result["verdict"] in WELL for each in ended.values())
    assert all(each.result["died"] == each.result["unfinished"] == [] for each in ended.values())


def interrupt(bench: Bench) -> None:
    """Check that Ctrl-C ends the run in good order: its record is kept, it gets a verdict, the exit code is 130."""
    assert "Traceback" not in (text := _interrupted(bench)), text


def interrupt_aloud(bench: Bench) -> None:
    """Check an interrupt as `interrupt` does, but allow stack traces in the output, which some worlds' layers print."""
    _interrupted(bench)


def _interrupted(bench: Bench) -> str:
    with bench.looking("interrupted"):
        running = bench.start("interrupted", bench.file("interrupted", LONG), "--no-page")
        running.until_round(3)
        ended = running.end(signal.SIGINT)
    assert ended.code == ExitCode.INTERRUPTED, ended.text
    assert (ended.result["verdict"], ended.result["reasons"][0]) == ("unknown", "the run was interrupted")
    assert ended.result["messages"]["delivered"] > 0
    return ended.text


def resume_of_a_killed_run(bench: Bench) -> None:
    """Check that a run that was killed leaves no process behind, and reaches its last round when it is resumed."""
    finished = _goes_on(bench)
    rounds = bench.options.rounds_of_seconds
    assert all(set(rounds_played(finished.run, node)) == set(range(rounds)) for node in range(4))
    _check_lives(finished.run, rounds)


def resume_without_the_last_rows(bench: Bench) -> None:
    """Check that a run resumed after a kill reaches its end, in a world where a kill may lose nodes' last records."""
    finished = _goes_on(bench)
    last = bench.options.rounds_of_seconds - 1
    assert all(rounds_played(finished.run, node)[-1] == last for node in range(4))


def _goes_on(bench: Bench) -> FinishedRun:
    path = _killed(bench)
    with bench.looking("resumed"):
        finished = resume(path, page=False)
    assert finished.exit_code == ExitCode.PASS, finished.result["reasons"]
    assert abs(finished.result["weight_sum"] - 1) < 1e-12
    assert finished.result["consensus_distance"] < 1e-4
    assert "has ended with verdict done" in _refusal(path)
    return finished


def replay_of_a_killed_run(bench: Bench) -> None:
    """Check that a run that was killed and resumed has the event log of an undisturbed run."""
    resume_of_a_killed_run(bench)
    undisturbed = bench.fleets({"left-alone": _resumed(bench) | {"checkpoint": {}}})["left-alone"]
    resumed = netdfl.open_run(bench.folder / "killed").result
    assert resumed["event_log_hash"] == undisturbed.result["event_log_hash"]


def refuses_to_resume(bench: Bench) -> None:
    """Check that resuming a killed run is refused, in a world whose runs can't be resumed."""
    assert "can be resumed" in _refusal(_killed(bench))


def full_disk(bench: Bench) -> None:
    """Check that a full disk breaks the run with its reason, the record is kept, and the exit code is 4."""
    assert "Traceback" not in (text := _filled(bench)), text


def full_disk_aloud(bench: Bench) -> None:
    """Check a full disk as `full_disk` does, but allow stack traces in the output, which some worlds' layers print."""
    _filled(bench)


def _filled(bench: Bench) -> str:
    with _small_disk(bench.folder / "disk") as disk, bench.looking("full-disk"):
        file = bench.file("full-disk", LONG)
        ended = bench.start("full-disk", file, "--no-page", out=disk / "run").wait()
        kept = sum(path.stat().st_size for path in (disk / "run" / "store").iterdir())
    assert ended.code == ExitCode.BROKE, ended.text
    assert "No space left on device" in ended.text
    assert kept > 0
    return ended.text


def nothing_left(bench: Bench) -> None:
    """Check that no run, however it ended, left a process, a socket, a temporary file or a device of the network."""
    if not bench.left:
        bench.fleets(LEARNING)
    left = {name: left for name, left in bench.left.items() if left}
    assert not left, f"left behind: {left}"
    ended = [path.parent for path in bench.folder.glob("*/result.json")]
    assert not [path for run in ended for path in run.rglob("*") if path.is_socket()]


def nothing_left_but_by_a_kill(bench: Bench) -> None:
    """Check as `nothing_left` does, in a world where a killed supervisor leaves some resources until the next run."""
    assert bench.options.a_kill_leaves
    nothing_left(bench)


def kept_models(path: Path) -> dict[str, tuple[float, list[float]]]:
    """Return every node's stored model in the run directory `path`, by file name: push-sum weight and numbers."""
    read = {file.name: read_snapshot(file) for file in sorted((path / "models").iterdir())}
    assert len(read) >= 4
    return {name: (snapshot.weight, snapshot.x.tolist()) for name, snapshot in read.items()}


def _killed(bench: Bench) -> Path:
    """Start a run and kill its command in the middle; return the run's directory."""
    with bench.looking("killed", but_for=bench.options.a_kill_leaves):
        running = bench.start("killed", bench.file("killed", _resumed(bench)), "--no-page")
        running.until_round(6)
        ended = running.end(signal.SIGKILL)
    assert not (ended.path / "result.json").exists()
    return ended.path


def _resumed(bench: Bench) -> Keys:
    return RESUMED | {"rounds": bench.options.rounds_of_seconds}


def _check_lives(run: Run, rounds: int) -> None:
    """Check that each node, once the killed run was resumed, continued after its own last stored round."""
    for resumed in run.result.get("resumed", ()):
        for node, own in resumed["rounds"].items():
            assert own >= 5
            sent = run.rows("SELECT DISTINCT round FROM messages WHERE epoch = 1 AND kind = 'data' AND src = ?", [node])
            assert {round for (round,) in sent} >= set(range(own, rounds))


def _refusal(path: Path) -> str:
    try:
        resume(path, page=False)
    except InputError as error:
        return str(error)
    raise AssertionError("the run was resumed")


@contextmanager
def _small_disk(disk: Path) -> Iterator[Path]:
    """Mount a disk that is soon full. Raises SkipTest without permission to mount one."""
    disk.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", disk]).returncode:
        raise SkipTest("mounting a small disk needs root on Linux")
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)
