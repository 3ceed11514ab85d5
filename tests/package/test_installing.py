"""The command that a sentence names installs into the Python that runs, whatever it is called."""

from __future__ import annotations

import shlex
import sys

import pytest

from netdfl.core import installing


def test_the_command_is_that_of_this_python_and_a_shell_reads_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/home/a lab/.venv/bin/python")
    words = shlex.split(installing.pip_install("netdfl[ray]", "pandas"))
    assert words == ["/home/a lab/.venv/bin/python", "-m", "pip", "install", "netdfl[ray]", "pandas"]


def test_an_environment_without_pip_is_one_of_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installing, "find_spec", lambda name: None)
    words = shlex.split(installing.pip_install("pandas"))
    assert words == ["uv", "pip", "install", "--python", sys.executable, "pandas"]
