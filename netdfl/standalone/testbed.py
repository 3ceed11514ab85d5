"""The command `netdfl testbed`: a folder in which `docker-compose up` runs the fleet on any Docker host."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from netdfl.core.errors import MachineError
from netdfl.core.files import check_empty
from netdfl.core.types import NodeId
from netdfl.host.plan import pack, unpack
from netdfl.packets.tun import address_of
from netdfl.record.forms import RESULT, damaged, read_form
from netdfl.scenario.build import compile_schedule
from netdfl.scenario.model.schema import Scenario
from netdfl.standalone.credentials import FLEET_SECRET, MOUNTED, write_credentials
from netdfl.standalone.packets import LINKS, NETWORK, NODES
from netdfl.standalone.request import check_joins
from netdfl.worlds.containers.compose import (
    HOME,
    NODE_LABEL,
    SOCKET,
    Fleet,
    acts_on_packets,
    engine_of,
    service_name,
    to_blocks,
)
from netdfl.worlds.containers.docker import Docker
from netdfl.worlds.containers.engine import IMAGE_USER
from netdfl.worlds.containers.image import BASE, CPU_INDEX, asks_gpus, write_recipe

ABOUT, LABEL, CREDENTIALS = "testbed.json", "netdfl.testbed", "credentials"
SECRET = "netdfl.pem"
PORT = 7000
KILLED = 137
_WRITABLE = 0o777


def write_testbed(scenario: Scenario, folder: Path, *, tls: bool = True) -> Path:
    """Write the testbed of `scenario` into the new `folder`, and return its path. Raises InputError.

    With `tls`, each node gets only the file that proves its own identity; else all nodes get the fleet's secret.
    """
    check_empty(folder)
    check_joins(scenario)
    world: Any = scenario.world
    label = secrets.token_hex(8)
    image = str(world.image) or write_recipe(folder / "image", scenario)
    for name in (NETWORK, *(f"{NODES}/{node:03d}" for node in range(scenario.num_nodes))):
        (folder / name).mkdir(parents=True)
        (folder / name).chmod(_WRITABLE)
    (folder / "data").mkdir()
    unpack(pack(scenario), folder)
    (folder / "peers.yaml").write_text("".join(f"{line}\n" for line in _peers(scenario)), encoding="utf-8")
    files = write_credentials(scenario, folder / CREDENTIALS, mounted=True, tls=tls)
    services, more = _services(scenario, image, label, tls)
    more |= {"secrets": {file.stem: {"file": f"./{CREDENTIALS}/{file.name}"} for file in files}}
    (folder / "docker-compose.yaml").write_text(to_blocks([{"services": services, **more}]), encoding="utf-8")
    links = {"layer": world.loss_layer, "engine": engine_of(scenario)}
    (folder / ABOUT).write_text(json.dumps({"label": label, "links": links}, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(_readme(scenario, image, tls), encoding="utf-8")
    return folder.resolve()


def _peers(scenario: Scenario) -> Sequence[str]:
    hosts = address_of if acts_on_packets(scenario) else service_name
    return [f'{node}: "{hosts(node)}:{PORT}"' for node in range(scenario.num_nodes)]


def _services(scenario: Scenario, image: str, label: str, tls: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    fleet = Fleet(
        scenario=scenario,
        image=image,
        shared=".",
        socket=f"{HOME}/{NETWORK}/{SOCKET}",
        owner=f"${{NETDFL_OWNER:-{IMAGE_USER}:{IMAGE_USER}}}",
        labels={LABEL: label},
        environment={"NETDFL_DATA": f"{HOME}/data"},
        hidden=[CREDENTIALS],
    )
    more: dict[str, Any] = {}
    if not scenario.world.image:  # type: ignore[attr-defined]
        index = "" if asks_gpus(scenario) else CPU_INDEX
        arguments = {"BASE": f"${{NETDFL_BASE:-{BASE}}}", "TORCH_INDEX": f"${{NETDFL_TORCH_INDEX-{index}}}"}
        more["build"] = {"context": "./image", "args": arguments}
    if any(event.action == "restart" for event in compile_schedule(scenario)):
        more["restart"] = "on-failure:3"
    services = {}
    if acts_on_packets(scenario):
        forwarder = fleet.service(["python", "-m", "netdfl.standalone.packets", HOME])
        services["forwarder"] = forwarder | {"network_mode": "none"} | more
    for node in range(scenario.num_nodes):
        command = node_command(f"{node}", f"{HOME}/{NODES}/{node:03d}", tls)
        secret = {"secrets": [{"source": f"{node}" if tls else Path(FLEET_SECRET).stem, "target": target(tls)}]}
        services[service_name(node)] = fleet.node(node, command) | secret | more
    return services, fleet.networks()


def node_command(node: str, out: str, tls: bool) -> list[str]:
    """Return the command that the container of `node` runs; the node writes to `out`."""
    files = [f"--scenario={HOME}/scenario.yaml", f"--peers={HOME}/peers.yaml", f"--out={out}"]
    where = f"{MOUNTED}/{target(tls)}"
    proof = [f"--credentials={where}"] if tls else ["--no-tls", f"--secret={where}"]
    return ["python", "-m", "netdfl.cli", "node", f"--id={node}", f"--listen=0.0.0.0:{PORT}", *proof, *files]


def target(tls: bool) -> str:
    """Return the path, below the folder of mounted secrets, of a node's credentials or, without TLS, the secret."""
    return SECRET if tls else FLEET_SECRET


def known_of(folder: Path) -> dict[str, Any]:
    """Return facts for `collect` about the testbed in `folder`: links, and deaths of containers.

    Raises InputError.
    """
    if not (folder / ABOUT).is_file():
        return {}
    with damaged(folder / ABOUT, "read"):
        about = read_form(folder / ABOUT, RESULT) or {}
        links = dict(read_form(folder / NETWORK / LINKS, RESULT) or about["links"])
        label = str(about["label"])
    links.pop("edges", None)
    try:
        deaths = asyncio.run(_deaths(f"{LABEL}={label}"))
    except MachineError:  # the folder was carried away from the host where it ran
        deaths = {}
    return {"links": links, "deaths": deaths}


async def _deaths(label: str) -> dict[NodeId, str]:
    docker = await Docker.find()
    found = {}
    for container in await docker.containers(label):
        node, state = container["Config"]["Labels"].get(NODE_LABEL), container["State"]
        if node is None or state["Running"] or not state["ExitCode"]:
            continue
        how = "by more memory than world.memory allows" if state["OOMKilled"] else "by Docker, or on its own host"
        killed = f"its container was killed {how} (SIGKILL)"
        found[int(node)] = killed if state["ExitCode"] == KILLED else f"its container ended with {state['ExitCode']}"
    return found


_NO_TLS = (
    "\nNodes talk in plain text (`--no-tls`), and prove to each other the secret of the fleet: the file in\n"
    "`credentials/`, mounted into each container. Whoever has it can take part: keep the folder to yourself."
)
_TLS = (
    "\nNodes talk by mutual TLS. A file of `credentials/` says which node a container is; it is mounted there as a\n"
    "secret, and no container sees another's. Whoever has it can be that node: keep the folder to yourself."
)


def _readme(scenario: Scenario, image: str, tls: bool) -> str:
    privilege = (
        "Each node's container makes a network device of its own (NET_ADMIN, /dev/net/tun) and becomes an\n"
        "unprivileged user; the service `forwarder` carries the packets between them under the scenario's links."
        if acts_on_packets(scenario)
        else "No container has any privilege; they talk over a bridge that leads nowhere else."
    )
    privilege += _TLS if tls else _NO_TLS
    return f"""# {scenario.name}: {scenario.num_nodes} nodes in containers

Needs a Linux host with Docker and Docker Compose (`docker-compose`, or `docker compose`); nothing of netdfl.

    docker-compose up                # builds the image {image} where there is none, runs the fleet, and ends with it
    netdfl collect . --out run       # where netdfl is installed: makes a run of what the nodes wrote, and its report
    docker-compose down              # removes the containers; after `collect`, which asks them how they ended

{privilege}

- `docker-compose.yaml`: a service for each node, with the scenario's limits of CPU and memory.
- `scenario.yaml`, `peers.yaml`: what every node reads; `nodes/`: what each writes, in a folder of its own.
- `image/`: the recipe of the image. Where no registry can be reached, make the base image with
  `sudo sh image/base.sh` and set `NETDFL_BASE=netdfl-base:bookworm`; wheels in `image/wheels` are used instead of
  what pip would fetch. Or carry the image itself: `docker save {image} | ssh HOST docker load`.
- `data/`: datasets that are in no package go here, as `netdfl data get NAME --root data` puts them.

Nodes write as user {IMAGE_USER}; `NETDFL_OWNER=$(id -u):$(id -g) docker-compose up` makes the files yours.
A node that was killed may be started again (`docker start`) while the others run, and rejoins. For a new run, empty
the folders in `nodes/`.
"""
