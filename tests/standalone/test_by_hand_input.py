"""What `netdfl node` and `netdfl collect` refuse, with the remedy."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from netdfl.core.errors import InputError, MachineError
from netdfl.scenario.load import load, loads
from netdfl.scenario.model.schema import Scenario
from netdfl.standalone.collect import collect, find_parts
from netdfl.standalone.credentials import write_credentials
from netdfl.standalone.node import live
from netdfl.standalone.record import NODE_FILE, NodeRecord, NodeStage
from netdfl.standalone.request import make_request, read_peers, split_address

SCENARIO = """
schema: netdfl/1
name: by-hand
nodes: 2
rounds: 2
task: {kind: consensus, dim: 4}
algorithm: dpsgd
topology: full
"""
ALL = {0: "a:1", 1: "b:2"}


def request(tmp_path: Path, peers: Any = ALL, on: str | None = None, **changes: Any) -> Any:
    file = tmp_path / "peers.json"
    file.write_text(peers if isinstance(peers, str) else json.dumps(peers), encoding="utf-8")
    return read_request(tmp_path, loads(SCENARIO, on=on), **changes)


def read_request(tmp_path: Path, scenario: Scenario, **changes: Any) -> Any:
    words: dict[str, Any] = {
        "node": 1,
        "listen": "0.0.0.0:5000",
        "out": tmp_path / "out",
        "tls": False,
        "open_to_all": True,
    }
    return make_request(scenario, peers=tmp_path / "peers.json", **words | changes)


def test_what_is_written_is_what_is_asked_for(tmp_path: Path) -> None:
    asked = request(tmp_path, start_timeout="1.5s")
    assert (asked.node, asked.host, asked.port, asked.start_timeout_ns) == (1, "0.0.0.0", 5000, 1_500_000_000)
    assert asked.peers == ALL
    assert asked.first == 0
    assert asked.directory.is_dir()
    assert request(tmp_path).start_timeout_ns == 60_000_000_000


def test_a_port_in_use_is_named_before_others_are_waited_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(MachineError, match=rf"^node 1 can't listen on {listen} \(Address already in use\): choose"):
            live(request(tmp_path, peers={0: "localhost:1", 1: listen}, listen=listen))


@pytest.fixture
def credentials(tmp_path: Path) -> Path:
    write_credentials(loads(SCENARIO), tmp_path / "credentials")
    return tmp_path / "credentials"


def test_each_life_gets_a_certificate_of_its_own(tmp_path: Path, credentials: Path) -> None:
    asked = request(tmp_path, tls=True, credentials=credentials / "1.pem", open_to_all=False)
    first, later = asked.certify(0), asked.certify(2)
    assert first.authority == later.authority
    assert first.key != later.key
    assert request(tmp_path).certify(0) is None


def test_credentials_are_their_owners_alone_and_nobodys_twice(credentials: Path) -> None:
    files = sorted(credentials.iterdir())
    assert [file.name for file in files] == ["0.pem", "1.pem", "fleet.secret"]
    assert [file.stat().st_mode & 0o777 for file in (credentials, *files)] == [0o700, 0o600, 0o600, 0o600]
    assert len({file.read_text() for file in files}) == 3
    with pytest.raises(InputError, match="is not an empty directory"):
        write_credentials(loads(SCENARIO), credentials)


@pytest.mark.parametrize(
    ("file", "mode", "words"),
    [
        (None, 0o600, "give --credentials DIR/ID.pem; or --no-tls --secret"),
        ("0.pem", 0o600, "0.pem: it is of node-0, not of node 1"),
        ("1.pem", 0o640, "1.pem can be read by others: chmod 600"),
        ("2.pem", 0o600, "2.pem can't be read: No such file"),
        ("scenario.yaml", 0o600, "scenario.yaml: no key and certificates are there"),
    ],
)
def test_without_good_credentials_no_node_begins(
    tmp_path: Path, credentials: Path, file: str | None, mode: int, words: str
) -> None:
    (credentials / "scenario.yaml").write_text(SCENARIO, encoding="utf-8")
    for each in credentials.iterdir():
        each.chmod(mode)
    with pytest.raises(InputError, match=words):
        request(tmp_path, tls=True, credentials=file and credentials / file, open_to_all=False)
    with pytest.raises(InputError, match="give one of the two"):
        request(tmp_path, credentials=credentials / "1.pem")


def test_all_nodes_have_the_one_secret_of_their_fleet(tmp_path: Path, credentials: Path) -> None:
    certified = request(tmp_path, tls=True, credentials=credentials / "1.pem", open_to_all=False)
    plain = request(tmp_path, secret=credentials / "fleet.secret", open_to_all=False)
    assert certified.secret == plain.secret
    assert len(plain.secret.text) == 64
    assert plain.secret.text not in repr((certified, plain))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"open_to_all": False}, r"whoever reaches 0\.0\.0\.0 could take part: give all nodes the same --secret"),
        ({"open_to_all": False, "listen": "node1.example:5000"}, "whoever reaches node1.example could take part"),
        ({"open_to_all": False, "listen": "[::]:5000"}, "could take part"),
        ({"secret": "fleet.secret"}, "--open is for a fleet without a secret"),
        ({"secret": "none", "open_to_all": False}, "--secret .*none can't be read"),
        ({"secret": "short", "open_to_all": False}, "--secret .*short has 5 letters: expected at least 32"),
        ({"secret": "shown", "open_to_all": False}, "--secret .*shown can be read by others: chmod 600"),
        ({"secret": "fleet.secret", "credentials": "1.pem", "tls": True, "open_to_all": False}, "leave --secret out"),
    ],
)
def test_a_node_without_a_secret_starts_only_where_it_is_told_so_or_nobody_else_comes(
    tmp_path: Path, credentials: Path, changes: dict[str, Any], words: str
) -> None:
    (credentials / "short").write_text("12345", encoding="utf-8")
    (credentials / "shown").write_text("1" * 64, encoding="utf-8")
    (credentials / "short").chmod(0o600)
    (credentials / "shown").chmod(0o644)
    named = {name: credentials / changes[name] for name in ("secret", "credentials") if name in changes}
    with pytest.raises(InputError, match=words):
        request(tmp_path, **changes | named)
    for host in ("127.0.0.1", "127.1.2.3", "localhost", "[::1]"):
        assert not request(tmp_path, listen=f"{host}:5000", open_to_all=False).secret.text


def test_credentials_of_an_earlier_netdfl_are_refused_in_a_sentence(tmp_path: Path, credentials: Path) -> None:
    text = (credentials / "1.pem").read_text().partition("-----BEGIN NETDFL")[0]
    (credentials / "1.pem").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"1\.pem: an earlier netdfl wrote it, without a secret; write new ones"):
        request(tmp_path, tls=True, credentials=credentials / "1.pem", open_to_all=False)


@pytest.mark.parametrize("text", ['{"0": "a:1", "1": "b:2"}', "0: a:1\n1: 'b:2'\n", "{0: 'a:1', 1: 'b:2'}"])
def test_peers_are_yaml_or_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "peers").write_text(text, encoding="utf-8")
    assert read_peers(tmp_path / "peers") == ALL


def test_an_address_of_ip_version_6_keeps_its_brackets() -> None:
    assert split_address("[::1]:5000") == ("[::1]", 5000)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"peers": {0: "a:1"}}, r"names the nodes \[0\], and by-hand has 0 to 1"),
        ({"peers": {0: "a:1", 1: "b"}}, "'b' is no address; write host:port"),
        ({"peers": "[1, 2]"}, "does not say where the nodes listen"),
        ({"peers": "{"}, "does not say where the nodes listen"),
        ({"peers": "{x: 'a:1'}"}, "does not say where the nodes listen"),
        ({"node": 2}, "--id 2 is no node of by-hand, which has 0 to 1"),
        ({"node": -1}, "--id -1 is no node"),
        ({"listen": "5000"}, "'5000' is no address"),
        ({"listen": "a:70000"}, "'a:70000' is no address"),
        ({"start_timeout": "60"}, "--start-timeout: '60' is not a time"),
        ({"on": "simulated"}, "of the world simulated; give --on processes"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        request(tmp_path, **changes)


def test_core_links_are_refused_with_their_line_as_no_supervisor_divides_them(tmp_path: Path) -> None:
    core = "underlay: {links: {a--b: {}}}\nworld: processes\n"
    told = "by hand there is no supervisor to divide core links.*use netdfl run, or give uplinks and downlinks"
    (tmp_path / "s.yaml").write_text(SCENARIO + core)
    for scenario, where in ((loads(SCENARIO + core), "underlay: "), (load(tmp_path / "s.yaml"), r"s\.yaml:9:\d+:.*")):
        with pytest.raises(InputError, match=f"(?s){where}{told}"):
            read_request(tmp_path, scenario)


def record(folder: Path, node: int, run: str = "00" * 8, stage: NodeStage = NodeStage.FINISHED) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    NodeRecord(node=node, run_id=run, epoch=0, scenario_hash="h", stage=stage).write(folder)


def test_folders_are_found_at_any_depth(tmp_path: Path) -> None:
    record(tmp_path / "nodes" / "1", 1)
    record(tmp_path / "host-a" / "fleet" / "0", 0)
    assert {node: part.folder.name for node, part in find_parts(tmp_path).items()} == {0: "0", 1: "1"}


@pytest.mark.parametrize(
    ("folders", "words"),
    [
        ({}, "holds no node.json of a node that began"),
        ({"a": (0, "00", NodeStage.GATHERING)}, "holds no node.json of a node that began"),
        ({"a": (0, "00", NodeStage.FINISHED), "b": (1, "11", NodeStage.FINISHED)}, "are of 2 runs"),
        ({"a": (0, "00", NodeStage.FINISHED), "b": (0, "00", NodeStage.FINISHED)}, "are both of node 0; keep one"),
    ],
)
def test_folders_of_no_one_run_are_refused(tmp_path: Path, folders: dict[str, Any], words: str) -> None:
    for name, (node, run, stage) in folders.items():
        record(tmp_path / name, node, run, stage)
    with pytest.raises(InputError, match=words):
        collect(tmp_path, out=tmp_path / "run")


def test_a_record_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / NODE_FILE).write_text('{"stage": "lost"}', encoding="utf-8")
    with pytest.raises(InputError, match=r"node\.json is damaged"):
        NodeRecord.read(tmp_path)
