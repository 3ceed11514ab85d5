"""What a run was made from, where netdfl's code runs without being installed, as in its image."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

import netdfl
from netdfl.core.files import version_of


def test_a_run_of_code_that_is_not_installed_says_the_versions_that_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = metadata.version
    assert version_of("netdfl") == known("netdfl")  # which this process knows from now on

    def version(name: str) -> str:
        if name == "netdfl":
            raise metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr("netdfl.running.provenance.version_of", version_of.__wrapped__)  # asked anew
    small = {"schema": "netdfl/1", "name": "bare", "nodes": 3, "rounds": 1, "world": "simulated"}
    run = netdfl.run({**small, "task": "consensus", "algorithm": "dpsgd", "topology": "ring"}, out=tmp_path / "run").run
    made = json.loads((run.path / "provenance.json").read_text())
    assert set(made["versions"]) == {"torch", "numpy"}
