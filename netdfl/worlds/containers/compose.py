"""The compose file of a fleet, with a service for each node, for Docker Compose 1.29 and 2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netdfl.core.types import NodeId
from netdfl.packets.handover import OWNER
from netdfl.scenario.build import compile_schedule
from netdfl.scenario.model.schema import Scenario
from netdfl.worlds.containers.image import asks_gpus

HOME = "/netdfl"
"""Path in each container of the folder that it shares with the others and the host."""
NODE_LABEL = "netdfl.node"
SOCKET = "packets.sock"
NETWORK = "fleet"
_PYTHON = ("python", "-m")
_LISTENS = "grep -v 0B00007F /proc/net/tcp | grep -q ' 0A '"  # but for the container's own name server


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The common settings of all Compose services (container definitions) of one fleet.

    Attributes:
        scenario: the scenario.
        image: the name of the image.
        shared: the folder on the host that every container sees as `/netdfl`.
        owner: the user of the processes in containers, `uid:gid`.
        labels: labels on everything that Docker creates for the fleet.
        mounts: other folders of the host, read-only, at the same path inside.
        socket: the path of the socket at which the packet forwarder receives each node's TUN device.
        environment: environment variables.
        hidden: folders of the shared one that no container sees.
    """

    scenario: Scenario
    image: str
    shared: str
    owner: str
    labels: Mapping[str, str]
    mounts: Sequence[Path] = ()
    socket: str = f"{HOME}/{SOCKET}"
    environment: Mapping[str, str] = field(default_factory=dict)
    hidden: Sequence[str] = ()

    @property
    def world(self) -> Any:
        """The world's options."""
        return self.scenario.world

    def node(self, node: NodeId, command: Sequence[str]) -> dict[str, Any]:
        """Return the Compose service (container definition) in which `node` runs `command`."""
        packets = acts_on_packets(self.scenario)
        service = self._common(node, command)
        if packets:
            device = [*_PYTHON, "netdfl.packets.handover", str(node), self.world.tcp, self.socket]
            service |= {
                "entrypoint": [*device, *command],
                "user": "0:0",
                "cap_add": ["NET_ADMIN", "SETUID", "SETGID"],
                "devices": ["/dev/net/tun:/dev/net/tun"],
                "network_mode": "none",
            }
            service["environment"][OWNER] = self.owner
        else:
            service["networks"] = [NETWORK]
        return service | self._limits()

    def networks(self) -> dict[str, Any]:
        """Return the Compose entry for the fleet's isolated network; empty if a forwarder carries the packets."""
        if acts_on_packets(self.scenario):
            return {}
        return {"networks": {NETWORK: {"internal": True, "labels": dict(self.labels)}}}

    def service(self, command: Sequence[str]) -> dict[str, Any]:
        """Return a Compose service (container definition) that runs `command` without privileges or network."""
        hidden = {"tmpfs": [f"{HOME}/{name}" for name in self.hidden]} if self.hidden else {}
        return hidden | {
            "image": self.image,
            "init": True,
            "user": self.owner,
            "entrypoint": list(command),
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true"],
            "environment": dict(self.environment),
            "labels": dict(self.labels),
            "volumes": [*self._volumes()],
        }

    def _common(self, node: NodeId, command: Sequence[str]) -> dict[str, Any]:
        service = self.service(command)
        service["labels"][NODE_LABEL] = str(node)
        service["healthcheck"] = {
            "test": ["CMD-SHELL", _LISTENS],
            "interval": "10s",
            "timeout": "5s",
            "retries": 3,
            "start_period": f"{self.world.start_timeout // 10**9}s",
        }
        return service

    def _limits(self) -> dict[str, Any]:
        limits: dict[str, Any] = {}
        if self.world.cpus is not None:
            limits["cpus"] = self.world.cpus
        if self.world.memory is not None:
            limits["mem_limit"] = self.world.memory
        if asks_gpus(self.scenario):
            gpus = {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
            limits["deploy"] = {"resources": {"reservations": {"devices": [gpus]}}}
        return limits

    def _volumes(self) -> Iterator[dict[str, Any]]:
        yield {"type": "bind", "source": _literal(self.shared), "target": HOME}
        for path in self.mounts:
            name = _literal(str(path))
            yield {"type": "bind", "source": name, "target": name, "read_only": True}


def _literal(path: str) -> str:
    """Return a path with escaped dollar signs, so that Compose expands no variables in it."""
    return path.replace("$", "$$")


def service_name(node: NodeId) -> str:
    """Return the name of a node's Compose service, which is also the host name of its container."""
    return f"node-{node:03d}"


def acts_on_packets(scenario: Scenario) -> bool:
    """Return whether link rules act on packets, so that nodes need TUN devices and a forwarder."""
    world: Any = scenario.world
    scripted = any(event.action in ("set", "unset") for event in compile_schedule(scenario))
    return world.loss_layer == "packet" and (bool(scenario.links) or scripted or scenario.underlay is not None)


def engine_of(scenario: Scenario) -> str:
    """Return the carrier of packets between nodes: `tun` (netdfl's forwarder of TUN devices) or `bridge` (Docker's)."""
    return "tun" if acts_on_packets(scenario) else "bridge"


def to_blocks(documents: Sequence[object], *, marked: bool = False) -> str:
    """Return documents as YAML in block style; `marked`: begin each document with `---`."""
    from io import StringIO

    from ruamel.yaml import YAML

    yaml, text = YAML(typ="safe", pure=True), StringIO()
    yaml.default_flow_style = False
    yaml.representer.ignore_aliases = lambda data: True
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.explicit_start = marked
    yaml.dump_all(documents, text)
    return text.getvalue()
