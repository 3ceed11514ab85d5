"""What containers are made of, without Docker: the compose file, devices that are handed over, refusals in one line."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from netdfl.core.errors import InputError
from netdfl.core.rng import Streams
from netdfl.links.channel import Links
from netdfl.links.spec import LinksSpec
from netdfl.packets.handover import hand_over, open_namespace, take_over
from netdfl.packets.received import HandedOverForwarder, listen
from netdfl.packets.tun import address_of
from netdfl.scenario.load import load, loads
from netdfl.scenario.model.plugins import files_beside
from netdfl.scenario.model.schema import Scenario
from netdfl.standalone import credentials
from netdfl.standalone.testbed import known_of, write_testbed
from netdfl.worlds.containers.compose import engine_of
from tests.warm import warm_python

FLEET = """
schema: netdfl/1
name: fleet
nodes: 3
rounds: 2
world: {{kind: containers, {world}}}
task: {{kind: quadratic, dim: 4}}
algorithm: dpsgd
topology: full
{more}
"""
LOSSY = "links: {default: {loss: 0.1}}"


def scenario(world: str = "cpus: 0.5, memory: 512MiB", more: str = "") -> Scenario:
    return loads(FLEET.format(world=world, more=more), file="fleet.yaml")


def compose(tmp_path: Path, **how: str) -> dict[str, Any]:
    folder = write_testbed(scenario(**how), tmp_path / "bed")
    return YAML(typ="safe").load((folder / "docker-compose.yaml").read_text())["services"]  # type: ignore[no-any-return]


def test_a_fleet_without_packet_faults_has_no_privilege(tmp_path: Path) -> None:
    services = compose(tmp_path)
    assert list(services) == ["node-000", "node-001", "node-002"]
    for service in services.values():
        assert service["cap_drop"] == ["ALL"]
        assert not {"cap_add", "devices", "privileged"} & set(service)
        assert not service["user"].startswith("0")


def test_packet_faults_need_a_device_for_each_node_and_nothing_for_the_forwarder(tmp_path: Path) -> None:
    services = compose(tmp_path, more=LOSSY)
    assert services["node-001"]["cap_add"] == ["NET_ADMIN", "SETUID", "SETGID"]
    assert services["node-001"]["network_mode"] == "none"
    assert services["forwarder"]["cap_drop"] == ["ALL"]
    assert not {"cap_add", "devices"} & set(services["forwarder"])


def test_limits_of_the_scenario_are_the_containers(tmp_path: Path) -> None:
    service = compose(tmp_path)["node-002"]
    assert (service["cpus"], service["mem_limit"]) == (0.5, 512 << 20)
    assert service["healthcheck"]["test"][0] == "CMD-SHELL"


def test_gpus_are_passed_through_only_where_asked(tmp_path: Path) -> None:
    assert "deploy" not in compose(tmp_path)["node-000"]
    text = FLEET.format(world="tcp: reno", more="").replace(
        "{kind: quadratic, dim: 4}", "{dataset: digits, model: mlp, batch_size: 32, device: cuda}"
    )
    folder = write_testbed(loads(text, file="fleet.yaml"), tmp_path / "gpus")
    service = YAML(typ="safe").load((folder / "docker-compose.yaml").read_text())["services"]["node-001"]
    (gpus,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert gpus["capabilities"] == ["gpu"]
    assert service["build"]["args"]["TORCH_INDEX"] == "${NETDFL_TORCH_INDEX-}"


@pytest.mark.parametrize("more", ["", LOSSY])
def test_each_container_of_a_testbed_has_its_own_proof_as_a_secret_and_sees_no_other(tmp_path: Path, more: str) -> None:
    folder = write_testbed(scenario(more=more), tmp_path / "bed")
    document = YAML(typ="safe").load((folder / "docker-compose.yaml").read_text())
    assert document["secrets"]["2"] == {"file": "./credentials/2.pem"}
    services = document["services"]
    assert services["node-002"]["secrets"] == [{"source": "2", "target": "netdfl.pem"}]
    assert all(service["tmpfs"] == ["/netdfl/credentials"] for service in services.values())
    assert "--credentials=/run/secrets/netdfl.pem" in services["node-002"]["entrypoint"]
    assert (folder / "credentials").stat().st_mode & 0o077 == 0
    others = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "credentials"]
    assert not any(b"PRIVATE KEY--" in path.read_bytes() for path in others)


def test_a_testbed_without_tls_says_so(tmp_path: Path) -> None:
    folder = write_testbed(scenario(), tmp_path / "bed", tls=False)
    text = (folder / "docker-compose.yaml").read_text()
    assert "--no-tls" in text
    assert "--secret=/run/secrets/fleet.secret" in text
    assert [file.name for file in (folder / "credentials").iterdir()] == ["fleet.secret"]
    assert (folder / "credentials").stat().st_mode & 0o077 == 0
    assert (folder / "credentials" / "fleet.secret").read_text().strip() not in text


def test_a_proof_that_is_mounted_may_be_a_link_and_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "MOUNTED", tmp_path)
    text = credentials.bundles(2, "0" * 64)[1]
    (tmp_path / "data").write_text(text)
    (tmp_path / "netdfl.pem").symlink_to("data")
    authority, secret = credentials.read_credentials(tmp_path / "netdfl.pem", 1)
    assert (authority.node, secret) == (1, "0" * 64)
    monkeypatch.setattr(credentials, "MOUNTED", tmp_path / "elsewhere")
    (tmp_path / "data").chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        credentials.read_credentials(tmp_path / "data", 1)


@pytest.mark.parametrize(
    ("world", "more", "engine"),
    [
        ("loss_layer: packet", LOSSY, "tun"),
        ("loss_layer: message", LOSSY, "bridge"),
        ("loss_layer: packet", "", "bridge"),
        ("loss_layer: packet", "events: [{at: 1s, partition: [[0], [1, 2]]}]", "tun"),
        ("loss_layer: packet", "events: [{at: 1s, crash: 1}]", "bridge"),
    ],
)
def test_packets_are_forwarded_only_where_something_acts_on_them(world: str, more: str, engine: str) -> None:
    assert engine_of(scenario(world, more)) == engine


def test_a_testbed_carries_the_files_that_its_scenario_names(tmp_path: Path) -> None:
    trace = tmp_path / "up.mahi"
    trace.write_text("1\n2\n")
    text = FLEET.format(world="tcp: reno", more=f"links: {{default: {{rate: {{kind: mahimahi, file: {trace}}}}}}}")
    folder = write_testbed(loads(text, file="fleet.yaml"), tmp_path / "bed")
    assert (folder / "files" / "0-up.mahi").read_text() == trace.read_text()
    assert str(tmp_path) not in (folder / "scenario.yaml").read_text()


def test_what_its_parts_import_goes_with_a_scenario_and_nothing_else(tmp_path: Path) -> None:
    home = tmp_path / "mine"
    for name, text in {
        "alone.py": "",
        "graphs/__init__.py": "",
        "graphs/own.py": "from netdfl.topology.static import ring as mine\nimport shared.sizes",
        "shared/sizes.py": "",
        "another/__init__.py": "",
        "data/large.bin": "",
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    (home / "fleet.yaml").write_text(
        FLEET.format(world="", more="").replace("topology: full", "topology: graphs.own:mine")
    )
    fleet = load(home / "fleet.yaml")
    assert [path.name for path in files_beside(str(home))] == ["alone.py", "graphs", "shared"]
    folder = write_testbed(fleet, tmp_path / "bed")
    assert (folder / "graphs" / "own.py").is_file()
    assert not list(folder.glob("**/__pycache__"))
    assert load(folder / "scenario.yaml").topology == fleet.topology


def test_a_folder_of_which_nothing_was_imported_has_its_modules(tmp_path: Path) -> None:
    (tmp_path / "own.py").touch()
    (tmp_path / "more").mkdir()
    assert files_beside(str(tmp_path)) == [tmp_path / "own.py"]


def test_what_a_testbed_is_known_to_be_without_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    folder = write_testbed(scenario(more=LOSSY), tmp_path / "bed")
    assert known_of(folder) == {"links": {"layer": "packet", "engine": "tun"}, "deaths": {}}
    assert known_of(tmp_path) == {}


def test_without_docker_a_run_ends_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(FLEET.format(world="image: none", more=""))
    command = [warm_python(), "-m", "netdfl.cli", "run", str(file), f"--out={tmp_path / 'run'}"]
    ended = subprocess.run(command, env={**os.environ, "PATH": ""}, capture_output=True, text=True)
    assert ended.returncode == 2
    (line,) = ended.stderr.strip().splitlines()
    assert "docker" in line
    assert "--on processes" in line


def test_a_device_travels_with_its_namespace(tmp_path: Path) -> None:
    listener = listen(tmp_path / "socket", 1)
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    hand_over(7, os.dup(there.fileno()), open_namespace(), tmp_path / "socket")
    line, _ = listener.accept()
    taken = take_over(line)
    assert taken is not None
    node, device, namespace = taken
    os.write(device, b"packet")
    assert (node, here.recv(100)) == (7, b"packet")
    assert os.fstat(namespace).st_ino == os.stat("/proc/self/ns/net").st_ino
    for each in (listener, here, there, line):
        each.close()
    os.close(device)
    os.close(namespace)


def test_half_a_device_is_refused(tmp_path: Path) -> None:
    one, other = socket.socketpair()
    one.send(b"\0\0\0\1")
    assert take_over(other) is None
    one.close()
    other.close()


class Fleet:
    """A forwarder in a thread, with pairs of sockets in place of devices."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path / "socket"
        self.forwarder = HandedOverForwarder(Links(LinksSpec({}, {}, 2), Streams(0)), [], 2, listen(self.path, 8))
        self.read, self.write = os.pipe()
        self.thread = threading.Thread(target=self.forwarder.serve, args=(0, self.read, self.end))
        self.thread.start()

    def end(self) -> None:
        self.forwarder.ended = True

    def join(self, node: int) -> socket.socket:
        mine, device = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        device.setblocking(False)
        mine.settimeout(20)
        hand_over(node, device.detach(), open_namespace(), self.path)
        return mine

    def close(self) -> None:
        os.write(self.write, b".")
        self.thread.join()


def packet(src: int, dst: int, text: bytes) -> bytes:
    addresses = socket.inet_aton(address_of(src)) + socket.inet_aton(address_of(dst))
    return b"\x45" + bytes(11) + addresses + text


def test_a_node_that_lives_again_takes_the_place_of_its_earlier_device(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    first, second = fleet.join(0), fleet.join(1)
    while len(fleet.forwarder.devices) < 2:
        pass
    first.send(packet(0, 1, b"one"))
    assert second.recv(100)[20:] == b"one"
    again = fleet.join(1)
    poll = select.poll()
    poll.register(again, select.POLLIN)
    while not poll.poll(50):
        first.send(packet(0, 1, b"two"))
    assert again.recv(100)[20:] == b"two"
    again.send(packet(1, 0, b"three"))
    assert first.recv(100)[20:] == b"three"
    fleet.close()
    counts = fleet.forwarder.counts()["edges"]
    assert counts["1->0"]["delivered"] == 1
    assert counts["0->1"]["sent"] >= 2
    fleet.forwarder.close()
    for each in (first, second, again):
        each.close()
