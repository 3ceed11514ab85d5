"""What a command imports: who waits for `--help` or for a small simulation waits for nothing that these do not need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from netdfl.scenario.load import load
from netdfl.scenario.loading.resolved import to_yaml

SMALL = {
    "schema": "netdfl/1",
    "name": "small",
    "nodes": 4,
    "rounds": 2,
    "topology": {"kind": "ring"},
    "algorithm": {"name": "dpsgd"},
    "task": {"kind": "consensus", "dim": 2},
    "world": {"kind": "simulated"},
}
HEAVY = ("torch", "torch._dynamo", "torch._inductor", "torchvision", "numpy", "duckdb", "matplotlib", "networkx")
HEAVY += ("pandas", "scipy", "sympy", "grpc", "google.protobuf", "pydantic", "jinja2")
NEEDED = {
    "--help": set(),
    "validate": {"numpy", "pydantic"},
    "run": {"numpy", "pydantic", "duckdb"},
}
SHOW = (
    "import atexit, json, subprocess, sys; began = []; popen = subprocess.Popen.__init__\n"
    "def noted(*args, **kwargs): began.append(1); popen(*args, **kwargs)\n"
    "subprocess.Popen.__init__ = noted\n"
    f"atexit.register(lambda: print(json.dumps([len(began), [m for m in {HEAVY} if m in sys.modules]])))\n"
    "from netdfl.cli import main; main()"
)


def imported(*arguments: object) -> tuple[int, set[str]]:
    """The processes that a command began, and the heavy modules that it imported."""
    command = [sys.executable, "-c", SHOW, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    processes, modules = json.loads(done.stdout.splitlines()[-1])
    return processes, set(modules)


@pytest.mark.parametrize("command", ["--help", "validate", pytest.param("run", marks=pytest.mark.soak)])
def test_a_command_imports_what_it_needs_and_starts_no_process(tmp_path: Path, command: str) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(to_yaml(load(SMALL)))
    arguments = {"--help": [], "validate": [file], "run": [file, "--no-page", "--out", tmp_path / "run"]}[command]
    assert imported(command, *arguments) == (0, NEEDED[command])


def test_a_run_that_looks_for_stalls_where_nobody_is_stuck_imports_no_more(tmp_path: Path) -> None:
    """Than a run that looks for none, which the soak has, too."""
    slow = {"links": {"default": {"latency": "1s"}, "0->1": {"latency": "1min"}}, "wait": {"deadline": "none"}}
    file = tmp_path / "slow.yaml"
    file.write_text(to_yaml(load(SMALL | slow | {"rounds": 12})))
    assert imported("run", file, "--no-page", "--out", tmp_path / "run") == (0, NEEDED["run"])


@pytest.mark.parametrize("module", ["netdfl", "netdfl.extend"])
def test_dir_has_the_public_names_before_their_first_use_and_imports_nothing_for_it(module: str) -> None:
    """By `dir`, a prompt completes names, and `help` says what there is."""
    missing = "sorted(set(sys.modules[name].__all__) - set(dir(sys.modules[name])))"
    code = f"import sys, {module}; name = {module!r}; print({missing}, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] False\n"
