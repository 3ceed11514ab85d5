"""Two hundred healthy fleets, several at once and slow in every way that is no deadlock: none may be called one."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.soak.tally import Count, append
from tests.warm import warm_python

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
RUNS, AT_ONCE, SEED = 200, 3, 1

SLOW = "links.default={latency: {dist: lognormal, mean: 400ms, jitter: 400ms}}"
HEALTHY: dict[str, tuple[str, list[str]]] = {
    "synchronous, slow links": ("faults/lost_message.yaml", ["rounds=6", "events=[]", SLOW]),
    "synchronous, one message of 3 s": (
        "faults/message_on_its_way.yaml",
        ['events=[{at_round: 5, for_rounds: 1, link: "2->3", latency: 3s}]'],
    ),
    "a paused node": ("faults/lost_message.yaml", ["rounds=60", "events=[{at: 100ms, for: 2500ms, pause: 2}]"]),
    "a link that heals": (
        "faults/lost_message.yaml",
        ["rounds=60", 'events=[{at: 100ms, for: 2500ms, link: "2--3", state: down_hold}]'],
    ),
    "quorum under loss": ("faults/quorum_survives.yaml", ["rounds=12", SLOW]),
    "rendezvous, bipartite": (
        "faults/rendezvous_ring.yaml",
        ["rounds=5", "algorithm.bipartite=true", "algorithm.order=random", SLOW],
    ),
    "push-sum under loss, acknowledged": (
        "smoke/push_sum.yaml",
        [
            "rounds=5",
            "wait.deadline=none",
            "delivery={kind: acknowledged, timeout: 1500ms}",
            "links.default={loss: 20%, latency: 50ms}",
        ],
    ),
    "a restart with kept state": (
        "smoke/push_sum.yaml",
        [
            "rounds=12",
            "wait.deadline=none",
            "failure_detector={kind: none}",
            "delivery={kind: acknowledged, timeout: 700ms}",
            "events=[{at_round: 4, crash: 2, restart_after: 500ms, state: kept}]",
        ],
    ),
    "training": ("smoke/training.yaml", ["wait.deadline=none"]),
}


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_two_hundred_healthy_runs_have_no_deadlock(tmp_path: Path) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = list(pool.map(lambda number: _trial(number, tmp_path / str(number)), range(RUNS)))
    counted = Count(RUNS, [f"{number}: {what}" for number, what in enumerate(wrong) if what])
    append("healthy runs under load without a deadlock", counted, SEED)
    assert counted.failures == []


def _trial(number: int, out: Path) -> str | None:
    """What is wrong with one run: a deadlock, a stall that nothing would end, or a run that did not get to its end."""
    draw = Random(f"{SEED}-{number}")
    name = list(HEALTHY)[number % len(HEALTHY)]
    file, sets = HEALTHY[name]
    sets = [*sets, f"seed={number}", "expect={}", *([] if "nodes" in name else [f"nodes={2 * draw.randint(2, 4)}"])]
    overrides = [part for each in sets for part in ("--set", each)]
    command = [warm_python(), "-m", "netdfl.cli", "run", str(SCENARIOS / file), "--on", "processes", "--no-page"]
    done = subprocess.run([*command, "--out", str(out), *overrides], text=True, capture_output=True)
    if not (out / "result.json").exists():
        return f"{name}: {done.stderr[-300:]}"
    bad = wrong(json.loads((out / "result.json").read_text()))
    return f"{name}: {bad}" if bad else None


def wrong(result: dict[str, Any]) -> list[str]:
    """What a healthy fleet's result must not hold. That the machine was too busy for its links is no matter here."""
    stalls = [stall["text"] for stall in result["stalls"] if stall["permanent"] and not stall["suspected"]]
    reasons = [] if result["verdict"] == "unknown" else result["reasons"]
    return [*(deadlock["text"] for deadlock in result["deadlocks"]), *stalls, *reasons]
