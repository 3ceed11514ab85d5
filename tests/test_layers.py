"""What an import costs: scenarios load, and networks are drawn, without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIGHT = [
    "import netdfl.cli",
    "import netdfl.links.path, netdfl.transport.grpc",
    "import netdfl; netdfl.load('scenarios/quickstart.yaml')",
    "import netdfl.scenario.explain.catalogue as c; [c.rows(what) for what in c.CATALOGUE]",
    "from netdfl.scenario.build import build_network; import netdfl; "
    "build_network(netdfl.load('scenarios/quickstart.yaml')).matrix(0)",
]


@pytest.mark.parametrize("program", LIGHT)
def test_it_needs_no_torch(program: str) -> None:
    code = f"import sys\n{program}\nsys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr or "torch was imported"


def test_the_supervisor_needs_no_grpc_before_it_forks() -> None:
    code = "import sys, netdfl.worlds.fork_client, netdfl.worlds.preload\nsys.exit('grpc' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr or "grpc was imported"
