"""Nodes are forked from a process that has imported all that they need, but grpc, and what needs grpc."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import importlib, os, sys
from netdfl.worlds import preload

preload.warm()
assert "grpc" not in sys.modules
before = set(sys.modules)
reader, writer = os.pipe()
if os.fork() == 0:  # a node
    importlib.import_module("netdfl.host.process")
    importlib.import_module("netdfl.training.service")
    late = [name for name in sys.modules if name not in before and name.startswith("netdfl.")]
    os.write(writer, " ".join(late).encode())
    os._exit(0)
os.close(writer)
late = os.fdopen(reader).read().split()
assert "netdfl.host.process" in late
sys.modules["grpc"] = None
for name in late:
    try:
        importlib.import_module(name)
    except ImportError:
        continue
    print(name)
"""


@pytest.mark.soak  # a breach makes a start slower, and no run wrong
def test_a_node_imports_itself_only_what_needs_grpc() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, text=True, capture_output=True, check=False, timeout=120
    )
    assert (done.stdout, done.returncode) == ("", 0), done.stdout + done.stderr
