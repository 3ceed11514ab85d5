"""A hostile scenario file is refused in a sentence, at little cost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from netdfl.core.errors import MOST_LETTERS, MOST_SHOWN, ScenarioError
from netdfl.scenario.load import load, loads
from netdfl.scenario.loading import document

BASE = "schema: netdfl/1\nname: x\nnodes: 4\nrounds: 2\ntask: consensus\nalgorithm: dpsgd\ntopology: ring\n"
HOSTILE: Mapping[str, tuple[str, str]] = {
    "too many keys": (BASE + "".join(f"k{i}: {i}\n" for i in range(51_000)), "more than 100,000 keys and values"),
    "too deep": (BASE + "x: " + "[" * 100_000, "more than 64 levels"),
    "aliases of aliases": (
        BASE + "a: &a [1]\n" + "".join(f"a{i}: &a{i + 1} [{f'*a{i or str()}, ' * 10}]\n" for i in range(9)),
        "more than 100,000 values, counting what aliases stand for",
    ),
    "a long line": (BASE + "# " + "x" * 5_000_000, "a line of more than 4,000,000 letters"),
    "many lines": (BASE + "\n" * 2_000_000, "more than 1,000,000 lines"),
    "a number of many digits": (BASE.replace("nodes: 4", "nodes: " + "9" * 5000), "not valid YAML"),
    "half of a character": (BASE.replace("name: x", r'name: "x\ud83d"'), "'x\\ud83d' has half of a character, write"),
    "half of a key": (BASE + r'"\ud83d": 1', "'\\ud83d' has half of a character"),
    "a long name": (BASE.replace("name: x", "name: " + "x" * 201), "at most 200 letters"),
}


RARELY = {"too many keys"}  # to read so many takes long; the next test has few


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.soak] if case in RARELY else []) for case in HOSTILE]
)
def test_a_hostile_scenario_is_refused_in_a_sentence(case: str) -> None:
    text, said = HOSTILE[case]
    with pytest.raises(ScenarioError) as refused:
        loads(text)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 5000


@pytest.mark.parametrize("changed", [{"name": "\ud83d"}, {"expect": {"weight_sum": "\ud83d"}}, {"\ud83d": 1}])
def test_half_of_a_character_in_python_is_refused_in_a_sentence(changed: Mapping[str, object]) -> None:
    scenario = {"schema": "netdfl/1", "name": "x", "nodes": 4, "rounds": 2, "task": "consensus", "algorithm": "dpsgd"}
    with pytest.raises(ScenarioError, match=r"scenario: '\\ud83d' has half of a character"):
        load({**scenario, "topology": "ring", **changed})


def test_more_keys_and_values_than_a_scenario_may_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MOST_VALUES", 200)
    loads(BASE)
    with pytest.raises(ScenarioError, match="more than 200 keys and values"):
        loads(BASE + "".join(f"k{i}: {i}\n" for i in range(100)))


def test_of_very_many_mistakes_the_first_are_printed_and_the_rest_counted() -> None:
    with pytest.raises(ScenarioError) as refused:
        loads(BASE + "".join(f"k{i}: {i}\n" for i in range(300)))
    lines = str(refused.value).splitlines()
    assert len(lines) == MOST_SHOWN + 1
    assert lines[-1] == "... and 200 more mistakes"


def test_a_mistake_quotes_no_more_than_a_screen() -> None:
    with pytest.raises(ScenarioError) as refused:
        loads(BASE.replace("task: consensus", "task: " + "y" * 100_000))
    assert len(str(refused.value)) < 3 * MOST_LETTERS


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "too large"])
def test_a_scenario_is_read_from_a_regular_file_of_bounded_size(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    elif kind == "folder":
        file.mkdir()
    else:
        file.touch()
        os.truncate(file, 17_000_000)
    with pytest.raises(ScenarioError, match="has more than 16 MB" if kind == "too large" else "is no regular file"):
        load(file)


@pytest.mark.soak  # it is nearly as large as it may be
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system tells no process its largest size")
def test_validating_a_hostile_scenario_takes_little_memory(tmp_path: Path) -> None:
    (file := tmp_path / "scenario.yaml").write_text(BASE + "".join(f"k{i}: {i}\n" for i in range(49_000)))
    measured = (
        "import re, sys; from netdfl.core.errors import ScenarioError; from netdfl.scenario.load import load\n"
        "try: load(sys.argv[1])\n"
        "except ScenarioError: print(re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())[1])"
    )
    done = subprocess.run([sys.executable, "-c", measured, str(file)], capture_output=True, text=True, timeout=120)
    assert int(done.stdout) < 300_000, done.stderr
