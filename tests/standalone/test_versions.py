"""Nodes by hand on other versions: refused where digits would differ, told once where not, and kept by `collect`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from netdfl.core.versions import Versions, deciding, grouped, mixed, only_told, taken, versions_here
from netdfl.record.judge import ExitCode
from netdfl.standalone.collect import collect
from netdfl.transport.control.rendezvous import READY, Rendezvous, make_call
from netdfl.transport.security.identity import Identity
from tests.standalone.hand_fleet import HandFleet

FLEET = """
schema: netdfl/1
name: versions
nodes: 3
rounds: 3
task: {kind: consensus, dim: 4}
algorithm: dpsgd
topology: full
"""
OURS = {
    "netdfl": "1.2.0",
    "python": "3.11.7",
    "torch": "2.13.0+cpu",
    "numpy": "2.4.6",
    "grpcio": "1.85",
    "code": "a",
} | {"data": "0e"}


@pytest.fixture
def fleets() -> Iterator[list[HandFleet]]:
    made: list[HandFleet] = []
    yield made
    for fleet in made:
        fleet.kill_all()


def installed(folder: Path, name: str, version: str) -> Path:
    """A folder of packages in which `name` says that it is of `version`."""
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


@pytest.mark.parametrize(
    ("change", "digits", "said"),
    [
        ({"netdfl": "1.2.1"}, ["netdfl"], []),
        ({"torch": "2.12.0+cpu"}, ["torch"], []),
        ({"torch": "2.13.0+cu130"}, [], ["torch"]),  # another build of the same
        ({"numpy": "2.4.5"}, ["numpy"], []),
        ({"python": "3.12.7"}, ["python"], []),
        ({"python": "3.11.9"}, [], []),
        ({"grpcio": "1.80"}, [], ["grpcio"]),
        ({"code": "b"}, [], ["code"]),
        ({"data": "0f"}, ["data"], []),
        ({"torch": ""}, [], []),  # not known, or not needed
        ({"a stranger's": "9"}, [], []),
    ],
)
def test_which_differences_change_digits(change: Versions, digits: list[str], said: list[str]) -> None:
    theirs = OURS | change
    assert (deciding(theirs, OURS), only_told(theirs, OURS)) == (digits, said)


def test_what_trains_nothing_says_nothing_of_torch() -> None:
    assert "torch" in versions_here(trains=True)
    assert {"python", "netdfl", "numpy", "code"} <= set(versions_here(trains=False)) - {"torch"}
    assert "torch" not in versions_here(trains=False)


def test_of_a_strangers_words_only_versions_are_taken() -> None:
    assert taken({"numpy": "2\n4" + "9" * 1000, "sudo": "1"}) == {"numpy": "24" + "9" * 38}


def test_nodes_that_ran_on_other_versions_than_most_are_named_together() -> None:
    old = {**OURS, "numpy": "2.3.0"}
    software = {0: OURS, 1: old, 2: OURS, 3: old, 4: {}, 5: OURS}
    assert list(mixed(software, deciding)) == [
        "node 4 did not say on what versions, as older ones of netdfl: digits may differ",
        "node 1, node 3 are on numpy 2.3.0, nodes 0, 2, 5 on numpy 2.4.6: their digits differ",
    ]
    assert [each.nodes for each in grouped(software)] == [[0, 2, 5], [1, 3], [4]]
    assert list(mixed({0: OURS, 1: OURS})) == []


async def test_who_says_no_versions_is_taken_and_known_to_have_said_none() -> None:
    """As a node of an older netdfl calls."""
    meeting = Rendezvous(Identity(0, 0, bytes(8), "h"), {0: "", 1: ""}, OURS)
    call = make_call(Identity(1, 0, bytes(8), "h"), READY)
    call.callee = 0
    answer = await meeting.meet(call, SimpleNamespace())
    assert (answer.refusal, meeting.missing, meeting.software) == ("", [], {1: {}})
    assert dict(answer.versions) == OURS


def test_nodes_by_hand_on_other_versions_are_refused_or_told_and_kept(fleets: list[HandFleet], tmp_path: Path) -> None:
    fleets.append(fleet := HandFleet(tmp_path / "fleet", FLEET, 3))
    here = versions_here(trains=False)
    fleet.start(0)
    fleet.start(1, packages=installed(tmp_path / "other_digits", "numpy", "0.0.1"))
    assert fleet.ended(1) == ExitCode.UNUSABLE
    differ = f"node 1 is on numpy 0.0.1, node 0 on numpy {here['numpy']}"
    assert f"refuses this node: {differ}: their digits would differ; install the same versions on all" in fleet.logs(
        [1]
    )

    fleet.start(1, 2, packages=installed(tmp_path / "old", "grpcio", "0.0.1"))
    assert set(fleet.end().values()) == {0}, fleet.logs([0, 1, 2])
    differ = f"node 1, node 2 are on grpcio 0.0.1, node 0 on grpcio {here['grpcio']}"
    assert f"{differ}: no digit is known to depend on that" in fleet.logs([0])
    assert "grpcio" not in fleet.logs([1, 2])

    notes: list[str] = []
    found = collect(fleet.folder, out=tmp_path / "one", note=notes.append, page=False)
    assert [note for note in notes if "grpcio" in note] == [
        f"node 0 is on grpcio {here['grpcio']}, nodes 1, 2 on grpcio 0.0.1: no digit is known to depend on that"
    ]
    assert [each["nodes"] for each in found.result["node_versions"]] == [[1, 2], [0]]
    assert found.result["node_versions"][0]["versions"]["grpcio"] == "0.0.1"
    assert found.result["warnings"] == []
    assert sorted(path.name for path in (found.path / "provenance").iterdir()) == ["000.json", "001.json", "002.json"]

    for node, versions in ((0, {}), (1, {**OURS, "numpy": "0.0.1"}), (2, OURS)):  # as nodes of before ran together
        file = fleet.directory(node) / "node.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"versions": versions}))
    found = collect(fleet.folder, out=tmp_path / "two", page=False)
    assert [(each["kind"], each["text"]) for each in found.result["warnings"]] == [
        ("versions", "node 0 did not say on what versions, as older ones of netdfl: digits may differ"),
        ("versions", "node 2 is on numpy 2.4.6, node 1 on numpy 0.0.1: their digits differ"),
    ]


SHARED_OUT = FLEET.replace(
    "task: {kind: consensus, dim: 4}", "task: {dataset: {name: digits, partition: P}, model: mlp}"
)
BY_PROCESS = """
import os

import numpy as np


def mine(labels, num_clients, streams, /):
    return np.array_split(np.random.default_rng(os.getpid()).permutation(len(labels)), num_clients)
"""


def test_nodes_by_hand_that_share_out_other_examples_are_refused(
    fleets: list[HandFleet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise two clients would train on the same examples in silence, and others on none."""
    (tmp_path / "own.py").write_text(BY_PROCESS)
    monkeypatch.chdir(tmp_path)
    fleets.append(fleet := HandFleet(tmp_path, SHARED_OUT.replace("P}", "{kind: 'own:mine'}}"), 3))
    fleet.start(0)
    fleet.start(1)
    assert fleet.ended(1) == ExitCode.UNUSABLE
    assert "node 1 shares out other examples than node 0: give all machines the same files" in fleet.logs([1])


def test_nodes_by_hand_with_other_modules_are_refused(
    fleets: list[HandFleet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an older copy of the user's algorithm would run on one machine in silence."""
    for node in (0, 1):
        (machine := tmp_path / f"machine{node}").mkdir()
        (machine / "own.py").write_text("import helper\nfrom netdfl.topology.static import ring as mine\n")
        (machine / "helper.py").write_text(f"SIZE = {node}\n")
        monkeypatch.chdir(machine)
        if not node:
            fleets.append(fleet := HandFleet(tmp_path, FLEET.replace("full", "{kind: 'own:mine'}"), 3))
        fleet.start(node)
    assert fleet.ended(1) == ExitCode.UNUSABLE
    assert "node 1 has other modules of your own than node 0: give all machines the same modules" in fleet.logs([1])
