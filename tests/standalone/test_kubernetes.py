"""The manifests for Kubernetes: valid by the published schemas, each node's proof of its own, no privilege."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from netdfl.core.errors import InputError
from netdfl.scenario.load import loads
from netdfl.scenario.model.schema import Scenario
from netdfl.standalone.kubernetes import dns_label, write_manifests
from netdfl.standalone.request import read_peers

TEXT = """
schema: netdfl/1
name: Three_Nodes
nodes: 3
rounds: 2
world: {{kind: containers, cpus: 0.5, memory: 512MiB{world}}}
task: {{kind: quadratic, dim: 4}}
algorithm: dpsgd
topology: full
links: {{default: {{latency: 5ms}}}}
"""


def scenario(world: str = "") -> Scenario:
    return loads(TEXT.format(world=world), file="three.yaml")


def objects(folder: Path) -> dict[tuple[str, str], Any]:
    found = [each for file in sorted(folder.glob("*.yaml")) for each in YAML(typ="safe").load_all(file.read_text())]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_manifests(scenario(", image: here/netdfl:1"), tmp_path_factory.mktemp("k") / "three")


def test_all_objects_are_valid(folder: Path) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    found = objects(folder)
    kinds = ["ConfigMap", "Job", "Job", "NetworkPolicy", "PersistentVolumeClaim", "Pod", "Secret", "Service"]
    assert sorted(kind for kind, _ in found) == kinds
    for each in found.values():
        kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)


def test_a_container_sees_its_own_proof_alone_and_no_privilege(folder: Path) -> None:
    found = objects(folder)
    pod = found["Job", "three-nodes"]["spec"]["template"]["spec"]
    (node,) = pod["containers"]
    (secret,) = (mount for mount in node["volumeMounts"] if mount["name"] == "credentials")
    assert secret["subPathExpr"] == "$(NODE).pem"
    assert f"--credentials={secret['mountPath']}" in node["command"]
    assert sorted(found["Secret", "three-nodes-credentials"]["stringData"]) == ["0.pem", "1.pem", "2.pem"]
    assert node["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["securityContext"]["runAsNonRoot"]
    assert node["resources"]["limits"] == {"cpu": "0.5", "memory": str(512 << 20)}


def test_keys_are_in_a_file_that_its_owner_alone_can_read(folder: Path) -> None:
    with_keys = [path for path in folder.iterdir() if path.is_file() and "PRIVATE KEY" in path.read_text()]
    assert [path.name for path in with_keys] == ["credentials.yaml"]
    assert with_keys[0].stat().st_mode & 0o077 == 0


def test_what_the_nodes_read_is_the_scenario_on_messages_and_each_others_names(folder: Path, tmp_path: Path) -> None:
    found = objects(folder)
    (volume,) = (
        each["configMap"]
        for each in found["Job", "three-nodes"]["spec"]["template"]["spec"]["volumes"]
        if "configMap" in each
    )
    data = found["ConfigMap", "three-nodes-scenario"]["binaryData"]
    for item in volume["items"]:
        (tmp_path / item["path"]).write_bytes(base64.b64decode(data[item["key"]]))
    peers = read_peers(tmp_path / "peers.yaml")
    assert peers == {node: f"three-nodes-{node}.three-nodes:7000" for node in range(3)}
    read = loads((tmp_path / "scenario.yaml").read_text(), file="scenario.yaml")
    assert (read.nodes, read.world.loss_layer) == (3, "message")
    assert found["Service", "three-nodes"]["spec"]["clusterIP"] == "None"


@pytest.mark.parametrize("tls", [True, False])
def test_the_last_command_takes_away_all_that_the_others_made(tmp_path: Path, tls: bool) -> None:
    folder = write_manifests(scenario(", image: here/netdfl:1"), tmp_path / "three", tls=tls)
    *_, last = (line.split() for line in (folder / "README.md").read_text().splitlines() if line.startswith("    "))
    kubectl, delete, kinds, selector = last
    assert (kubectl, delete) == ("kubectl", "delete")
    wanted = dict(pair.split("=") for pair in selector.removeprefix("--selector=").split(","))
    made = objects(folder)
    for (kind, name), each in made.items():
        assert kind.lower() in kinds.split(","), name
        assert wanted.items() <= each["metadata"]["labels"].items(), name
    pods = [each["spec"]["template"]["metadata"]["labels"] for (kind, _), each in made.items() if kind == "Job"]
    assert all(wanted.items() <= labels.items() for labels in pods)
    assert wanted["app.kubernetes.io/instance"] == "three-nodes"  # and nothing of another fleet


def test_without_tls_there_is_the_secret_of_the_fleet_alone(tmp_path: Path) -> None:
    folder = write_manifests(scenario(", image: here/netdfl:1"), tmp_path / "plain", tls=False)
    assert "fleet.secret: " in (folder / "credentials.yaml").read_text()
    assert "PRIVATE KEY" not in (folder / "credentials.yaml").read_text()
    assert "--no-tls" in (folder / "fleet.yaml").read_text()
    assert "--secret=/run/secrets/fleet.secret" in (folder / "fleet.yaml").read_text()


def test_links_on_packets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="loss_layer: message"):
        write_manifests(scenario(", loss_layer: packet"), tmp_path / "packets")


@pytest.mark.parametrize(
    ("name", "label"), [("quickstart", "quickstart"), ("Ä 3.x", "fleet-3-x"), ("a" * 50, "a" * 40), ("_", "fleet")]
)
def test_names_are_such_as_kubernetes_takes(name: str, label: str) -> None:
    assert dns_label(name) == label
