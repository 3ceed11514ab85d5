"""Folders that somebody gives you to resume or to gather: damaged or planted files give a sentence, and do nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

import netdfl
from netdfl.core.errors import InputError, NetdflError
from netdfl.core.fates import Fate
from netdfl.core.types import Kind, MessageId, StepId
from netdfl.diagnosis.account import Account, EdgeAccount, WaitAccount
from netdfl.diagnosis.snapshot import State, WaitKind
from netdfl.host.models import snapshot_path, write_snapshot
from netdfl.node.checkpoint import HEADER, save_state
from netdfl.record.judge import WELL
from netdfl.record.run import open_run
from netdfl.record.store import StoreWriter
from netdfl.running.run import resume
from netdfl.scenario.load import loads
from netdfl.scenario.loading.resolved import to_yaml
from netdfl.standalone.accounts import ACCOUNTS_FILE, Accounts
from netdfl.standalone.collect import collect
from netdfl.standalone.record import NODE_FILE, NodeRecord, NodeStage
from netdfl.standalone.testbed import known_of
from netdfl.supervisor.resumption import RESUMPTIONS, find_resumption

SCENARIO = """
schema: netdfl/1
name: given
nodes: 2
rounds: 2
task: {kind: consensus, dim: 4}
algorithm: dpsgd
topology: full
checkpoint: {every: 1}
events: [{at_round: 1, crash: 1, restart_after: 1s, state: kept}]
"""
WEIRD: list[Any] = [4294967295, -1, 1e300, "'; DROP", None, [], {}, "../../x"]


@pytest.fixture
def hand(tmp_path: Path) -> Path:
    """What two nodes without a supervisor left, in a folder that is called `hand`."""
    folder, scenario = tmp_path / "hand", loads(SCENARIO)
    for node in range(2):
        home = folder / str(node)
        (home / "snapshots").mkdir(parents=True)
        (home / "scenario.yaml").write_text(to_yaml(scenario))
        with StoreWriter(home, f"{node:03d}") as store:
            for round in range(2):
                store.metrics(round * 10**9, node, round, {"round_s": 1.0})
                write_snapshot(snapshot_path(home, round, node), torch.zeros(4, dtype=torch.float64), 1.0)
            store.event(10**9, node, 1, "probed", cause="deadlock", what="x", detection_s=0.1, roots=[0], culprits=[1])
        NodeRecord(node=node, run_id="00" * 8, epoch=0, scenario_hash="h", stage=NodeStage.FINISHED, at_s=2.0).write(
            home
        )
    return folder


def gather(folder: Path) -> str:
    number = sum(1 for _ in folder.parent.glob("run-*"))
    return str(collect(folder, out=folder.parent / f"run-{number}", page=False).result["verdict"])


def change(path: Path, **changed: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def without_probed(hand: Path) -> None:
    for file in hand.rglob("events-*.jsonl"):
        file.unlink()


def test_what_is_as_nodes_write_it_is_gathered(hand: Path) -> None:
    without_probed(hand)
    assert gather(hand) in WELL


def test_an_event_that_lacks_what_it_should_say_is_a_sentence(hand: Path) -> None:
    with pytest.raises(InputError, match="can't be gathered: its files are damaged"):
        gather(hand)


@pytest.mark.parametrize(
    "field",
    [
        *("node", "stage", "crash", "loss", "address"),
        *(pytest.param(field, marks=pytest.mark.soak) for field in ("run_id", "epoch", "round", "at_s")),
    ],
)
def test_any_word_of_a_node_may_be_any_other(hand: Path, field: str) -> None:
    without_probed(hand)
    for weird in WEIRD:
        change(hand / "0" / NODE_FILE, **{field: weird})
        with suppress(InputError):
            gather(hand)
    change(hand / "0" / NODE_FILE, **{field: {"a": 4294967295}})
    with pytest.raises(InputError, match=rf"node\.json is damaged: {field}"):
        gather(hand)


def test_a_crash_is_told_as_a_node_tells_it(hand: Path) -> None:
    without_probed(hand)
    change(hand / "1" / NODE_FILE, stage="crashed", crash={"at_ns": "x", "source": 0, "at_round": 1})
    with pytest.raises(InputError, match=r"node\.json is damaged: crash\.at_ns"):
        gather(hand)


def test_a_node_that_the_scenario_lacks_is_named(hand: Path) -> None:
    change(hand / "0" / NODE_FILE, node=700)
    with pytest.raises(InputError, match="is of node 700, which given has not"):
        gather(hand)


def test_accounts_come_back_as_they_were_given(tmp_path: Path) -> None:
    key = MessageId(Kind.DATA, 0, StepId(1, 0), 0, 0)
    edge = EdgeAccount(sent=2, delivered=1, dropped={Fate.read("dropped:loss"): 1}, in_flight=0, flying=((key, 5),))
    edge = replace(edge, last=((key, 5, None, Fate.read("dropped:loss")), (key, 5, 7, Fate.read("delivered"))))
    what: dict[str, Any] = {
        "what": WaitKind.MESSAGE,
        "round": 1,
        "step": 0,
        "sources": (1,),
        "need": 1,
        "have": (),
        "left_out": (),
    }
    wait = WaitAccount(**what, since_ns=3, deadline_ns=None)
    head: dict[str, Any] = {"node": 0, "epoch": 0, "at_ns": 9, "state": State.WAITING, "round": 1, "since_ns": 3}
    account = Account(**head, again=((1, key.logical),), wait=wait, edges={1: edge}, stack="x")
    given = Accounts(account, replace(account, wait=None, state=State.FINISHED))
    given.write(tmp_path)
    read = Accounts.read(tmp_path)
    assert read is not None
    assert json.dumps([read.quiet.to_json(), read.last.to_json()]) == json.dumps(
        [given.quiet.to_json(), given.last.to_json()]
    )
    assert read.quiet.wait == wait
    assert read.quiet.edges[1].last[0] == (key, 5, None, Fate.read("dropped:loss"))
    assert (read.quiet.again, read.quiet.edges[1].flying) == (account.again, ((key, 5),))


def test_accounts_of_netdfl_0_2_0_are_read() -> None:
    """There an id was flat and had no part, and what is sent again had no kind."""
    edge = {"sent": 1, "delivered": 0, "dropped": {}, "in_flight": 1, "flying": [[["data", 2, 7, 1, 3], 5]]}
    head = {"node": 0, "epoch": 0, "at_ns": 9, "state": "running", "round": 1, "since_ns": 3, "edges": {1: edge}}
    account = Account.from_json(head | {"again": [[1, 7, 1]]})
    key = MessageId(Kind.DATA, 2, StepId(7, 1), 0, 3)
    assert (account.again, account.edges[1].flying) == (((1, key.logical),), ((key, 5),))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"quiet": 1, "last": 2}', "[" * 9999])
def test_accounts_are_read_as_such(hand: Path, text: str) -> None:
    without_probed(hand)
    change(hand / "0" / NODE_FILE, stage="stopped")
    (hand / "0" / ACCOUNTS_FILE).write_text(text)
    with pytest.raises(InputError, match=r"accounts\.json is damaged"):
        gather(hand)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is no model that a node wrote"),
        (save({"y": torch.zeros(4)}), "is no model that a node wrote"),
        (save({"x": torch.zeros(4)}), "is no model that a node wrote"),
        (save({"x": torch.zeros(4)}, {"weight": "heavy"}), "is no model that a node wrote"),
        (save({"x": torch.zeros(2, 2)}, {"weight": "1"}), r"is no model that a node wrote: shape \(2, 2\)"),
        (save({"x": torch.zeros(5)}, {"weight": "1"}), "is a model of 5 parameters, and the scenario's has 4"),
    ],
)
def test_models_are_read_as_such(hand: Path, data: bytes, words: str) -> None:
    without_probed(hand)
    snapshot_path(hand / "0", 0, 0).write_bytes(data)
    with pytest.raises(InputError, match=words):
        gather(hand)


@pytest.mark.parametrize("place", [NODE_FILE, "store/metrics-x.jsonl", "models", "logs/000.log", "snapshots/x"])
def test_no_link_of_a_nodes_folder_is_followed(hand: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "secret").write_text("secret")
    path = hand / "0" / place
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match="is a link"):
        gather(hand)
    assert not list(tmp_path.glob("run-*"))


@pytest.mark.parametrize("text", ["", "[]", '{"label": "x"}', '{"label": "x", "links": 7}'])
def test_what_a_testbed_says_of_itself_is_read_as_such(tmp_path: Path, text: str) -> None:
    from netdfl.standalone.testbed import ABOUT

    (tmp_path / ABOUT).write_text(text)
    with pytest.raises(InputError, match="damaged"):
        known_of(tmp_path)


# resuming


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated run without its result, as if it had been killed."""
    out = tmp_path_factory.mktemp("played") / "run"
    netdfl.run(loads(SCENARIO, on="simulated"), out=out, page=False)
    (out / "result.json").unlink()
    return out


@pytest.fixture
def killed(played: Path, tmp_path: Path) -> Path:
    shutil.copytree(played, tmp_path / "killed")
    return tmp_path / "killed"


def test_a_run_is_resumed_where_nothing_is_wrong(killed: Path) -> None:
    assert resume(killed, page=False).result["verdict"] in WELL


@pytest.mark.parametrize(
    "place", ["snapshots", ".lock", "store", "logs", "checkpoints/x", "scenario.yaml.bak", "fleet.json"]
)
def test_resuming_goes_through_no_link(killed: Path, tmp_path: Path, place: str) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("mine")
    path = killed / place
    path.parent.mkdir(exist_ok=True)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(mine, target_is_directory=True)
    with pytest.raises(InputError, match="is a link"):
        resume(killed, page=False)
    assert os.listdir(mine) == ["thesis.tex"]


def test_a_result_without_a_verdict_is_one_that_ended(killed: Path) -> None:
    (killed / "result.json").write_text("{}")
    with pytest.raises(InputError, match="has ended with verdict None"):
        resume(killed, page=False)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"directory": 7}', '{"directory": {}}'])
def test_where_a_run_came_from_is_read_as_such(killed: Path, text: str) -> None:
    (killed / "origin.json").write_text(text)
    scenario = killed / "scenario.yaml"
    scenario.write_text(scenario.read_text().replace("name: dpsgd", "name: mine:method"))
    assert "mine:method" in scenario.read_text()
    with pytest.raises(NetdflError):
        resume(killed, page=False)


HEADERS: list[Any] = ["", "{", "[]", "7", '{"tuple": []}', '{"tuple": [{"fields": {}}, 1]}', "[" * 9999]


@pytest.mark.parametrize("header", HEADERS)
def test_checkpoints_of_a_simulated_run_are_read_as_such(killed: Path, header: str) -> None:
    files = sorted((killed / "checkpoints").glob("*.safetensors"))
    assert files
    files[0].write_bytes(save({"0": torch.zeros(3)}, {HEADER: header}))
    with pytest.raises(InputError, match=r"expected .*got"):
        resume(killed, page=False)


@pytest.fixture
def cut_off(tmp_path: Path) -> Path:
    """A run of real nodes that ended with their supervisor: what it left, as far as it is looked at."""
    out = tmp_path / "cut-off"
    (out / "checkpoints").mkdir(parents=True)
    (out / "scenario.yaml").write_text(to_yaml(loads(SCENARIO)))
    return out


Plant = Callable[[Path], object]


def headed(header: str) -> Plant:
    return lambda out: (out / "checkpoints/000.safetensors").write_bytes(save({"0": torch.zeros(1)}, {HEADER: header}))


DAMAGES: list[Plant] = [
    *map(headed, HEADERS),
    lambda out: (out / "checkpoints/000.safetensors").write_bytes(b"\xff" * 64),
    lambda out: save_state((7, 7), out / "checkpoints/000.safetensors"),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_checkpoints_of_real_nodes_are_read_as_such(cut_off: Path, damage: Plant) -> None:
    damage(cut_off)
    with pytest.raises(InputError, match=r"expected a node's checkpoint, got|holds no checkpoint"):
        find_resumption(open_run(cut_off), loads(SCENARIO))
    with pytest.raises(InputError):
        resume(cut_off, page=False)


def test_earlier_resumptions_are_read_as_such(cut_off: Path) -> None:
    from netdfl.supervisor.resumption import resumptions

    for text in ("{}", "[7]", '[{"at_s": "x", "doubt": ""}]', '[{"at_s": 1e999, "doubt": ""}]'):
        (cut_off / RESUMPTIONS).write_text(text)
        with pytest.raises(InputError, match=r"resumed\.json is damaged"):
            resumptions(cut_off)
