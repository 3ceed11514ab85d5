"""The command `netdfl testbed --for kubernetes`: manifests with which a Kubernetes cluster runs the fleet.

An Indexed Job has a pod for each node, which others find by the names of a headless Service. The scenario comes from a
ConfigMap. The credentials of all nodes are in a Secret, and each node's container sees only the file of its node. All
nodes write to one volume; a second Job collects a run from it.
"""

from __future__ import annotations

import os
import re
import secrets
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from netdfl.core.errors import InputError
from netdfl.core.files import PRIVATE, check_empty
from netdfl.host.plan import pack
from netdfl.scenario.model.schema import Scenario
from netdfl.standalone.credentials import FLEET_SECRET, MOUNTED, bundles
from netdfl.standalone.request import check_joins
from netdfl.standalone.testbed import PORT, node_command, target
from netdfl.worlds.containers.compose import HOME, acts_on_packets, to_blocks
from netdfl.worlds.containers.engine import IMAGE_USER
from netdfl.worlds.containers.image import asks_gpus, write_recipe

RECORD = "/netdfl-record"
MOST_BYTES = 1_000_000
"""Most bytes in a ConfigMap: somewhat less than Kubernetes allows."""
LONGEST_NAME = 40
GIVEN_UP = [1, 2, 4, 130]
"""Exit codes of `netdfl node` after which the same node would fail again."""
KINDS = ("job", "pod", "service", "networkpolicy", "configmap", "secret", "persistentvolumeclaim")
"""All kinds of Kubernetes objects that a fleet has, named by the command that removes the fleet.

The command can't name the files instead, as the file with the Secret may be deleted by then.
"""
_OWNER = {"runAsNonRoot": True, "runAsUser": IMAGE_USER, "runAsGroup": IMAGE_USER, "fsGroup": IMAGE_USER}

Manifest = dict[str, Any]


def write_manifests(scenario: Scenario, folder: Path, *, tls: bool = True) -> Path:
    """Write the manifests of `scenario` into the new `folder`, and return its path. Raises InputError."""
    check_empty(folder)
    check_joins(scenario)
    scenario = _on_messages(scenario)
    fleet = Manifests(scenario, str(scenario.world.image), tls=tls)  # type: ignore[attr-defined]
    config = fleet.config_map()
    folder.mkdir(PRIVATE, parents=True, exist_ok=True)
    if not fleet.image:
        fleet.image = write_recipe(folder / "image", scenario, collects=True)
    _write(folder / "fleet.yaml", [fleet.volume(), config, fleet.service(), fleet.policy(), fleet.job()])
    _write(folder / "collect.yaml", [fleet.collecting()])
    _write(folder / "copy.yaml", [fleet.copying()])
    _write(folder / "credentials.yaml", [fleet.secret()], 0o600)
    (folder / "README.md").write_text(fleet.readme(), encoding="utf-8")
    return folder.resolve()


def _on_messages(scenario: Scenario) -> Scenario:
    """Return the scenario with links that act on messages and not on packets, because pods share no packet forwarder.

    Raises InputError if the scenario itself asks for links that act on packets.
    """
    world = scenario.world
    if not acts_on_packets(scenario):
        return scenario
    if "loss_layer" in world.model_fields_set:
        raise InputError(
            "world.loss_layer: on Kubernetes links can't act on packets, whose forwarder needs all containers on one "
            "machine; write `loss_layer: message`, or make a testbed for Docker"
        )
    return scenario.model_copy(update={"world": world.model_copy(update={"loss_layer": "message"})})


class Manifests:
    """The Kubernetes objects of one fleet, all named after its scenario."""

    def __init__(self, scenario: Scenario, image: str, *, tls: bool) -> None:
        """Describe the objects for containers that run `image`, whose nodes talk by mutual TLS if `tls` is true."""
        self.scenario, self.image, self.tls = scenario, image, tls
        self.name = dns_label(scenario.name)

    def volume(self) -> Manifest:
        """Return the volume to which all nodes write, on any machine."""
        asked = {"requests": {"storage": "10Gi"}}
        spec = {"accessModes": ["ReadWriteMany"], "resources": asked}
        return self._object("v1", "PersistentVolumeClaim", "record", spec)

    def config_map(self) -> Manifest:
        """Return the files that every node reads. Raises InputError if they are too large."""
        files = pack(self.scenario) | {"peers.yaml": "".join(f"{line}\n" for line in self._peers()).encode()}
        size = sum(map(len, files.values()))
        if size > MOST_BYTES:
            raise InputError(
                f"what the nodes read has {size} bytes, and a ConfigMap holds {MOST_BYTES}: name smaller files, or an "
                "image of your own that has them (world.image)"
            )
        self.files = {f"file-{number}": name for number, name in enumerate(files)}
        data = {key: b64encode(files[name]).decode() for key, name in self.files.items()}
        return self._object("v1", "ConfigMap", "scenario") | {"binaryData": data}

    def secret(self) -> Manifest:
        """Return the credentials of all nodes; without TLS, the secret of the fleet."""
        secret = secrets.token_hex(32)
        made = bundles(self.scenario.num_nodes, secret) if self.tls else {}
        files = {f"{node}.pem": text for node, text in made.items()} or {FLEET_SECRET: secret}
        return self._object("v1", "Secret", "credentials") | {"type": "Opaque", "stringData": files}

    def service(self) -> Manifest:
        """Return the service that gives the nodes names, even before they are ready."""
        spec = {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": self._labels("node"),
            "ports": [{"name": "netdfl", "port": PORT}],
        }
        return self._object("v1", "Service", "", spec)

    def policy(self) -> Manifest:
        """Return the network policy that closes the fleet's ports to other pods."""
        others = {"podSelector": {"matchLabels": self._labels("node")}}
        spec = {
            "podSelector": {"matchLabels": self._labels("node")},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [others], "ports": [{"protocol": "TCP", "port": PORT}]}],
        }
        return self._object("networking.k8s.io/v1", "NetworkPolicy", "", spec)

    def job(self) -> Manifest:
        """Return the job that runs the nodes.

        A node that was killed or evicted restarts and rejoins; a failed one does not.
        """
        count = self.scenario.num_nodes
        failed = {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": GIVEN_UP}}
        evicted = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        apart = {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": self._labels("node")},
        }
        pod = {"subdomain": self.name, "topologySpreadConstraints": [apart]}
        spec = {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": count,
            "backoffLimitPerIndex": 6,
            "maxFailedIndexes": count,
            "podFailurePolicy": {"rules": [evicted, failed]},
            "template": self._pod("node", self._node(), pod),
        }
        return self._object("batch/v1", "Job", "", spec)

    def collecting(self) -> Manifest:
        """Return the job that collects a run from the nodes' files; its exit code is the verdict."""
        command = ["python", "-m", "netdfl.cli", "collect", f"{RECORD}/nodes", f"--out={RECORD}/run"]
        template = self._pod("collect", self._container("collect", command))
        return self._object("batch/v1", "Job", "collect", {"backoffLimit": 0, "template": template})

    def copying(self) -> Manifest:
        """Return a pod from which a user can copy the run."""
        pod = self._pod("copy", self._container("copy", ["sleep", "3600"]))
        return self._object("v1", "Pod", "copy", pod["spec"])

    # parts of them

    def _object(self, api: str, kind: str, part: str, spec: Mapping[str, Any] | None = None) -> Manifest:
        metadata = {"name": f"{self.name}-{part}" if part else self.name, "labels": self._labels()}
        return {"apiVersion": api, "kind": kind, "metadata": metadata} | ({} if spec is None else {"spec": dict(spec)})

    def _labels(self, part: str = "") -> dict[str, str]:
        fleet = {"app.kubernetes.io/name": "netdfl", "app.kubernetes.io/instance": self.name}
        return fleet | ({"app.kubernetes.io/component": part} if part else {})

    def _peers(self) -> Sequence[str]:
        nodes = range(self.scenario.num_nodes)
        return [f'{node}: "{self.name}-{node}.{self.name}:{PORT}"' for node in nodes]

    def _node(self) -> Manifest:
        container = self._container("node", node_command("$(NODE)", f"{RECORD}/nodes/$(NODE)", self.tls))
        index = {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}
        container["env"].append({"name": "NODE", "valueFrom": {"fieldRef": index}})
        container["ports"] = [{"name": "netdfl", "containerPort": PORT}]
        container["readinessProbe"] = {"tcpSocket": {"port": PORT}}
        container["resources"] = self._resources()
        container["volumeMounts"].append({"name": "scenario", "mountPath": HOME, "readOnly": True})
        mine = {"mountPath": f"{MOUNTED}/{target(self.tls)}", "readOnly": True}
        file = {"subPathExpr": "$(NODE).pem"} if self.tls else {"subPath": FLEET_SECRET}
        container["volumeMounts"].append({"name": "credentials", **mine, **file})
        return container

    def _container(self, name: str, command: Sequence[str]) -> Manifest:
        return {
            "name": name,
            "image": self.image,
            "command": list(command),
            "env": [
                {"name": "NETDFL_DATA", "value": f"{RECORD}/data"},
                {"name": "MPLCONFIGDIR", "value": "/tmp"},
            ],
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
            "volumeMounts": [{"name": "record", "mountPath": RECORD}, {"name": "tmp", "mountPath": "/tmp"}],
        }

    def _resources(self) -> Manifest:
        world: Any = self.scenario.world
        limits = {"cpu": world.cpus, "memory": world.memory, "nvidia.com/gpu": int(asks_gpus(self.scenario)) or None}
        found = {name: str(amount) for name, amount in limits.items() if amount is not None}
        return {"limits": found} if found else {}

    def _pod(self, part: str, container: Manifest, more: Mapping[str, Any] | None = None) -> Manifest:
        volumes: list[Manifest] = [
            {"name": "record", "persistentVolumeClaim": {"claimName": f"{self.name}-record"}},
            {"name": "tmp", "emptyDir": {}},
        ]
        if part == "node":
            items = [{"key": key, "path": name} for key, name in self.files.items()]
            volumes.append({"name": "scenario", "configMap": {"name": f"{self.name}-scenario", "items": items}})
        if part == "node":
            secret = {"secretName": f"{self.name}-credentials", "defaultMode": 0o440}
            volumes.append({"name": "credentials", "secret": secret})
        spec = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": _OWNER | {"seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
            "volumes": volumes,
            **(more or {}),
        }
        return {"metadata": {"labels": self._labels(part)}, "spec": spec}

    def readme(self) -> str:
        """Return the text of `README.md`: how to run the fleet with the files in the folder."""
        secret = "kubectl apply -f credentials.yaml\n    "
        build = f"docker build -t {self.image} image" if not self.scenario.world.image else ""  # type: ignore[attr-defined]
        proof = (
            _PROOF
            if self.tls
            else "Nodes talk in plain text (`--no-tls`): whoever is in the cluster's network may listen. They prove\n"
            "to each other the secret of the fleet, `credentials.yaml`. Once it is applied, delete it here."
        )
        selector = ",".join(f"{key}={value}" for key, value in self._labels().items())
        return _README.format(
            name=self.name, image=self.image, secret=secret, nodes=self.scenario.num_nodes, proof=proof,
            kinds=",".join(KINDS), selector=selector,
            build=f"    {build}    # then push it to a registry of the cluster's\n" if build else "",
        )  # fmt: skip


_PROOF = (
    "Nodes talk by mutual TLS. `credentials.yaml` says who they are: whoever has it can be any node. Each container\n"
    "sees its own node's file of it alone. Once it is applied, delete it here."
)
_README = """# {name}: {nodes} nodes on Kubernetes

Needs a cluster of version 1.29 or later, and a storage class whose volumes many machines can write to
(`ReadWriteMany`): name it in `fleet.yaml` where it is not the default. Nobody looks after such a fleet; with a
supervisor, on machines that KubeRay gives, the same scenario runs by `netdfl run --on ray`.

{build}    {secret}kubectl apply -f fleet.yaml
    kubectl wait job/{name} --for=condition=complete --timeout=24h
    kubectl apply -f collect.yaml         # makes a run of what the nodes wrote, and judges it
    kubectl logs --follow job/{name}-collect
    kubectl apply -f copy.yaml
    kubectl wait pod/{name}-copy --for=condition=ready
    kubectl cp {name}-copy:/netdfl-record/run run
    kubectl delete {kinds} --selector={selector}

{proof} The last command takes all away that the others made, by its labels.

- `fleet.yaml`: the volume, the scenario, the headless Service by which nodes find each other, a policy that lets
  nobody else to their ports, and the Indexed Job: a pod a node, on as many machines as there are.
- Containers run image `{image}` as user 10001 without any privilege.
- Datasets that are in no package are read from `data/` on the volume.
- A node that is killed, or whose machine goes, begins again and rejoins; one that failed does not.
"""


def dns_label(name: str) -> str:
    """Return a name that Kubernetes accepts, as close to `name` as possible."""
    label = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:LONGEST_NAME].strip("-")
    return label if label[:1].isalpha() else f"fleet-{label}".strip("-")


def _write(file: Path, objects: Sequence[Manifest], mode: int = 0o644) -> None:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as opened:
        opened.write(to_blocks(objects, marked=True))
