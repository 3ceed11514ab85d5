"""The command `netdfl node`: runs one node of a fleet without a supervisor, on any machine.

Nothing here imports torch or grpc; modules that do are imported once the input is known to be sound.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netdfl.core.clock import NS_PER_S
from netdfl.core.errors import InputError, ScenarioError
from netdfl.core.files import PRIVATE
from netdfl.core.given_files import given_text
from netdfl.core.types import NodeId
from netdfl.core.units import parse_time_ns
from netdfl.scenario.loading.document import parse
from netdfl.scenario.model.schema import Scenario
from netdfl.standalone.credentials import read_credentials, read_secret
from netdfl.transport.security.credentials import Credentials
from netdfl.transport.security.secret import OPEN, FleetSecret

if TYPE_CHECKING:
    from netdfl.transport.security.authority import Authority

LOOPBACK = "127.0.0.1"
START_TIMEOUT_NS = 60 * NS_PER_S
WORLDS = ("processes", "namespaces", "containers")


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request to start one node.

    Attributes:
        scenario: the scenario.
        node: the node.
        host: the host to listen on.
        port: the port to listen on.
        peers: the addresses of all nodes.
        directory: the directory of the node's files.
        start_timeout_ns: the longest time to wait for the other nodes.
        authority: signs a certificate for each start of the node's process; None: all nodes talk in plain text.
        secret: the fleet's secret, which nodes prove to each other.
        metrics: the host and port at which Prometheus is answered; None: nowhere.
    """

    scenario: Scenario
    node: NodeId
    host: str
    port: int
    peers: Mapping[NodeId, str]
    directory: Path
    start_timeout_ns: int
    authority: Authority | None = None
    secret: FleetSecret = OPEN
    metrics: tuple[str, int] | None = None

    def certify(self, epoch: int) -> Credentials | None:
        """Return new credentials for a process of the node that has `epoch` restarts before it; None without TLS."""
        return None if self.authority is None else self.authority.issue(self.node, epoch)

    @property
    def first(self) -> NodeId:
        """The node with the lowest number, to which all others report before the start."""
        return min(self.peers)


def read_peers(file: Path) -> dict[NodeId, str]:
    """Read each node's address from a YAML or JSON file that maps numbers to `host:port`. Raises InputError."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    example = 'expected a mapping such as {0: "node0:5000", 1: "10.0.0.2:5000"}'
    try:
        found: Any = YAML(typ="safe", pure=True).load(given_text(file))
        return {int(node): ":".join(map(str, split_address(str(where)))) for node, where in found.items()}
    except OSError as error:
        raise InputError(f"{file} can't be read: {error.strerror}; {example}") from error
    except (YAMLError, AttributeError, ValueError) as error:
        raise InputError(f"{file} does not say where the nodes listen: {error}; {example}") from error


def check_joins(scenario: Scenario) -> None:
    """Raise InputError if the scenario lets a node join late, which needs a supervisor."""
    for index, event in enumerate(scenario.events):
        if "join" in event:
            raise InputError(
                f"events[{index}]: nodes without a supervisor wait for all others before they begin, so none joins "
                "late; leave the entry out, or run the scenario in a world"
            )


def split_address(text: str) -> tuple[str, int]:
    """Return the host and the port of `host:port`. Raises InputError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise InputError(f"{text!r} is no address; write host:port, like 0.0.0.0:5000")
    return host, int(port)


def make_request(
    scenario: Scenario,
    node: NodeId,
    listen: str,
    peers: Path,
    out: Path | None = None,
    start_timeout: str | None = None,
    credentials: Path | None = None,
    tls: bool = True,
    secret: Path | None = None,
    open_to_all: bool = False,
    metrics: str | None = None,
) -> Request:
    """Check the arguments of the command `netdfl node`; return the request to start the node. Raises InputError."""
    check_joins(scenario)
    host, port = split_address(listen)
    _check_talk(credentials, tls, secret, open_to_all, host)
    addresses = _addresses(scenario, node, peers)
    authority, text = _proofs(credentials, secret, node)
    directory = out or Path("fleet") / scenario.name / str(node)
    try:
        directory.mkdir(PRIVATE, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{directory} can't be made: {error.strerror}; name another with --out DIR") from error
    return Request(
        scenario=scenario,
        node=node,
        host=host,
        port=port,
        peers=addresses,
        directory=directory.resolve(),
        start_timeout_ns=_start_timeout_ns(scenario, start_timeout),
        authority=authority,
        secret=FleetSecret(text=text, by_address=False),
        metrics=None if metrics is None else metrics_address(metrics),
    )


def metrics_address(text: str) -> tuple[str, int]:
    """Return host and port of `9100` or `10.0.0.2:9100`; the default host is the loopback. Raises InputError."""
    return split_address(text if ":" in text else f"{LOOPBACK}:{text}")


def _proofs(credentials: Path | None, secret: Path | None, node: NodeId) -> tuple[Authority | None, str]:
    """Return the node's certificate authority (None without credentials) and the fleet's secret, from the files.

    Raises InputError.
    """
    if credentials is not None:
        return read_credentials(credentials, node)
    return None, "" if secret is None else read_secret(secret)


def _check_talk(credentials: Path | None, tls: bool, secret: Path | None, open_to_all: bool, host: str) -> None:
    """Raise InputError unless the options say how nodes prove who they are, or that they belong to the fleet."""
    if tls and credentials is None:
        raise InputError(
            "nodes that nobody looks after prove to each other who they are: make a file for each by "
            "`netdfl credentials SCENARIO --out DIR`, and give --credentials DIR/ID.pem; or --no-tls --secret "
            "DIR/fleet.secret, where nobody can listen on the way"
        )
    if not tls and credentials is not None:
        raise InputError("--credentials are for mutual TLS, and --no-tls has none: give one of the two")
    if secret is not None and credentials is not None:
        raise InputError("--credentials hold the fleet's secret, too: leave --secret out")
    if open_to_all and (secret is not None or credentials is not None):
        raise InputError("--open is for a fleet without a secret: leave it out, or the secret")
    if not tls and secret is None and not open_to_all and not _is_loopback(host):
        raise InputError(
            f"whoever reaches {host} could take part: give all nodes the same --secret DIR/fleet.secret, which "
            "`netdfl credentials SCENARIO --out DIR` writes; or --open, where nobody but this fleet reaches the ports"
        )


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host.strip("[]")).is_loopback
    return host == "localhost"


def _addresses(scenario: Scenario, node: NodeId, peers: Path) -> Mapping[NodeId, str]:
    """Return the address of every node of `scenario`, from the file `peers`; check that `node` is among them.

    Raises InputError.
    """
    if scenario.world.kind not in WORLDS:
        raise InputError(
            f"a node by hand runs on the real clock, and {scenario.name} is of the world {scenario.world.kind}; "
            f"give --on processes, or another of {', '.join(WORLDS)}"
        )
    if scenario.underlay is not None and scenario.world.loss_layer == "message":
        raise _without_supervisor(scenario)
    addresses, wanted = read_peers(peers), set(range(scenario.num_nodes))
    if set(addresses) != wanted:
        raise InputError(
            f"{peers} names the nodes {sorted(addresses)}, and {scenario.name} has 0 to {scenario.num_nodes - 1}"
            + (" (the last is the server)" if scenario.has_server else "")
        )
    if node not in wanted:
        raise InputError(f"--id {node} is no node of {scenario.name}, which has 0 to {scenario.num_nodes - 1}")
    return addresses


def _without_supervisor(scenario: Scenario) -> InputError:
    """Return the error that refuses core links, as there is no supervisor to divide their rates.

    It names the line of the scenario file, if there is one.
    """
    what = "by hand there is no supervisor to divide core links among all flows"
    remedy = "use netdfl run, or give uplinks and downlinks in links"
    try:
        document = parse(scenario.file.read_text(encoding="utf-8"), str(scenario.file)) if scenario.file else None
    except (InputError, OSError):
        document = None
    if document is None:
        return InputError(f"underlay: {what}; {remedy}")
    return ScenarioError([document.problem(("underlay",), what, remedy=remedy, key=True)])


def _start_timeout_ns(scenario: Scenario, written: str | None) -> int:
    try:
        return (
            int(getattr(scenario.world, "start_timeout", START_TIMEOUT_NS))
            if written is None
            else parse_time_ns(written)
        )
    except ValueError as error:
        raise InputError(f"--start-timeout: {error}") from error
