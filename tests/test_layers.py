"""What an import costs: scenarios load, and networks are drawn, without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIGHT = [
    "import netdfl.cli",
    "import netdfl.links.path, netdfl.transport.grpc.transport",
    "import netdfl; netdfl.load('scenarios/quickstart.yaml')",
    "import netdfl.scenario.explain.keys as c; [c.rows(what) for what in c.CATALOGUE]",
    "from netdfl.scenario.build import build_network; import netdfl; "
    "build_network(netdfl.load('scenarios/quickstart.yaml')).matrix(0)",
]


def test_they_need_no_torch() -> None:
    """One after the other in one interpreter: what any of them imports stays there."""
    code = "import sys\n" + "".join(f"{program}\nassert 'torch' not in sys.modules, {program!r}\n" for program in LIGHT)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_the_supervisor_needs_no_grpc_before_it_forks() -> None:
    code = "import sys, netdfl.worlds.fork_client, netdfl.worlds.preload\nsys.exit('grpc' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr or "grpc was imported"
