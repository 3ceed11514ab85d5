"""Every scenario of scenarios/found shows what its comment says, bit for bit, again and on other settings too."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import netdfl
from netdfl.record.run import Run
from tests.soak.another_machine import hashes

HERE = Path(__file__).resolve().parents[2]
FOUND = sorted((HERE / "scenarios" / "found").glob("*.yaml"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Run]:
    """The run of a scenario, made once."""
    return cache(lambda file: netdfl.run(file, out=tmp_path_factory.mktemp(file.stem) / "run", page=False).run)


@pytest.mark.parametrize("file", FOUND, ids=[file.stem for file in FOUND])
def test_it_shows_what_was_found(file: Path, runs: Callable[[Path], Run]) -> None:
    text = file.read_text(encoding="utf-8")
    result = runs(file).result
    assert result["verdict"] == "pass", result["reasons"]
    assert f"# Event log: {result['event_log_hash']}\n" in text
    comment = re.sub(r"\n# ", " ", text.partition("# Found in")[0])
    told = [each["text"] for each in (*result["stalls"], *result["deadlocks"], *result["warnings"])]
    assert any(each.partition(". Since")[0] in comment for each in told)


@pytest.mark.parametrize("file", FOUND, ids=[file.stem for file in FOUND])
def test_a_replay_waits_for_whom_the_diagnosis_found(file: Path, runs: Callable[[Path], Run]) -> None:
    """At the moment of each stall; and at its end, where nothing stood still, nobody waits."""
    run = runs(file)
    kept = [json.loads(each.read_text()) for each in sorted((run.path / "stalls").glob("*.json"))]
    assert bool(kept) == file.stem.startswith("stalled")
    with netdfl.replay(run) as replay:
        for stall in kept:
            replay.until(f"{stall['at_ns']}ns")
            waits = {(now["node"], int(on)) for now in stall["nodes"] if now["wait"] for on in now["wait"]["awaited"]}
            assert waits
            assert set(replay.waits) == waits
            assert stall["finding"]["text"] in [finding.text for finding in replay.findings]
        if not kept:
            assert not replay.until("end").waits


USUAL = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "COMPATIBLE", "OMP_NUM_THREADS": "2", "LC_ALL": "C"}


@cache
def here_and_now() -> dict[str, dict[str, str]]:
    """The hashes in this process."""
    return hashes(list(map(str, FOUND)))


@pytest.mark.soak  # tests/simulated/test_golden.py does so in CI, for another scenario
@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (USUAL, "event_log"),
        ({"ATEN_CPU_CAPABILITY": "default", "PYTHONHASHSEED": "7", "HOME": "/nonexistent"}, "happened"),
    ],
    ids=["a usual processor of another maker", "a processor without vectors"],
)
def test_it_is_the_same_on_other_settings(settings: dict[str, str], what: str) -> None:
    """Bit for bit; without vectors the terms of sums come in another order, but the same happens."""
    command = [sys.executable, "-m", "tests.soak.another_machine", "--hashes", *map(str, FOUND)]
    done = subprocess.run(command, env=os.environ | settings, cwd=HERE, capture_output=True, text=True, check=True)
    there = json.loads(done.stdout.splitlines()[-1])
    for file in FOUND:
        name = str(file.relative_to(HERE))
        if what == "event_log":
            assert f"# Event log: {there[name][what]}\n" in file.read_text(encoding="utf-8")
        else:
            assert there[name][what] == here_and_now()[name][what], name
