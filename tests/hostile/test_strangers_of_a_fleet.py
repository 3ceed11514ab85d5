"""Strangers on the machine of a fleet: other users, and what is in sight of them."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.attacked import Target, run_attacked
from tests.hostile.client import STRANGERS
from tests.hostile.table import Placed, scenario

AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def others_run_python() -> bool:
    """Whether another user can be had here, who can read Python and the tests."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return False
    tried = [*AS_NOBODY, sys.executable, "-c", "import tests.hostile.client"]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": os.environ["PATH"]}
    return subprocess.run(tried, capture_output=True, env=environment, cwd="/").returncode == 0


@pytest.mark.parametrize("tls", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["plain text", "TLS"])
def test_another_user_of_the_machine_gets_no_further(tls: bool, tmp_path: Path) -> None:
    if not others_run_python():
        pytest.skip("only root can be another user, who must be able to read Python")
    placed = Placed("kind: processes, nodes_per_process: 2", tls, through=AS_NOBODY)
    visit = placed.strangers(list(STRANGERS), "gossip", tmp_path / "run")
    assert visit.listed == {True}  # and nothing else of the fleet was told them by the machine


async def secrets_in_sight(target: Target) -> tuple[str, list[str]]:
    """The secret of the fleet, and the command lines where it stands."""
    lines = await asyncio.to_thread(lambda: {str(path): read(path) for path in Path("/proc").glob("[0-9]*/cmdline")})
    return target.secret, [path for path, line in lines.items() if target.secret.encode() in line]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process has ended
        return b""


def test_the_secret_is_in_no_file_and_no_command_line(tmp_path: Path) -> None:
    told = scenario("gossip", "kind: processes, nodes_per_process: 2")
    _, (secret, seen) = run_attacked(told, tmp_path / "run", secrets_in_sight)
    assert len(secret) >= 32
    assert seen == []
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
