"""The blocks `world` and `failure_detector`: where a fleet runs, and how its nodes learn of failures."""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from netdfl.core.units import parse_time_ns
from netdfl.scenario.model.choices import Choices, listed, refused
from netdfl.scenario.model.fields import QUANTITIES, Choice, Duration, Strict, by_kind, make_model
from netdfl.scenario.model.network import Nodes
from netdfl.scenario.model.parts import Part

_S = 10**9
Size = Annotated[int, *QUANTITIES["size"], Field(ge=64 << 20)]
BodySize = Annotated[int, *QUANTITIES["size"], Field(ge=1)]

SHARED_FROM = 32 << 10
SHARED = "From which size on messages lie in memory that the nodes of a machine share; null: all go through gRPC."

LossLayer = Literal["message", "packet"]


def _instant(text: str) -> str:
    """Return `text` if it is written as a time, such as `20s`. Raises ValueError."""
    parse_time_ns(text)
    return text


def _thing(text: str) -> str:
    """Return `text` if it names a message (`0->1`) or a timer (`wait 1 0 0`). Raises ValueError."""
    if not re.fullmatch(r"\d+->\d+|[a-z]+( -?\d+)+", text):
        raise ValueError(f"{text!r} names nothing that is due; write 0->1 for a message, wait 1 0 0 for a deadline")
    return text


Instant = Annotated[str, AfterValidator(_instant)]
Thing = Annotated[str, AfterValidator(_thing)]


class WorldOptions(Choice):
    """The common keys of all worlds (places where a fleet runs). `entry` is the catalog entry of a user's own world."""

    entry: ClassVar[object] = None
    loss_layer: LossLayer = Field("message", description="Whether links act on messages, or on packets below TCP.")


class Fidelity(Strict):
    """The lateness that is allowed to the median message of a link: the larger of two bounds."""

    relative: float = Field(0.25, ge=0, description="Share of the mean scheduled delay.")
    slack: Duration = Field(50_000_000, description="At least this much is allowed.")


class RealOptions(WorldOptions):
    """The common keys of worlds whose nodes are processes, on the real clock."""

    fidelity: Fidelity = Field({}, validate_default=True, description="When links on messages are not to be trusted.")
    start_timeout: Duration = Field(60 * _S, description="How long the nodes may take to start.")
    stopped_after: Duration = Field(
        60 * _S, gt=0, description="How long a node's process may not answer before it counts as stopped for good."
    )


class PacketOptions(RealOptions):
    """The common keys of worlds whose nodes have network devices, so that links may act on packets."""

    loss_layer: LossLayer = Field("packet", description="Whether links act on messages, or on packets below TCP.")


class LocalOptions(RealOptions):
    """The common keys of worlds whose nodes are processes that the supervisor starts on this machine."""

    tls: bool = Field(False, description="Mutual TLS between nodes, and with the supervisor: a certificate a life.")


class ProcessesOptions(LocalOptions):
    """Real gRPC servers in local processes, on the real clock; links emulated above gRPC."""

    kind: Literal["processes"] = "processes"
    nodes_per_process: int = Field(1, ge=1, description="How many nodes share a process.")
    shared_from: BodySize | None = Field(SHARED_FROM, description=SHARED)


class Site(Strict):
    """A group of nodes that must run on certain machines."""

    nodes: Nodes = Field(description="Which nodes.")
    machines: str = Field(
        description="Which machines: a host name, an address, a feature in Slurm, a resource or label=value in Ray."
    )


class MachinesOptions(RealOptions):
    """The common keys of worlds whose nodes live on other machines; links emulated above gRPC."""

    tls: bool = Field(True, description="Mutual TLS between nodes, and with the supervisor; false: anybody may listen.")
    nodes_per_process: int = Field(1, ge=1, description="How many nodes share a process.")
    shared_from: BodySize | None = Field(SHARED_FROM, description=SHARED)
    rejoin: bool = Field(
        False, description="Whether nodes of a machine that died live again, from the others' state, once it is back."
    )
    rejoin_within: Duration = Field(
        600 * _S, description="How long a machine that died is tried, and waited for where the others can't go on."
    )
    gone_after: Duration = Field(
        7 * _S,
        ge=2 * _S,
        description="How long a machine's own system may not answer before the machine and its nodes count as gone.",
    )
    network: str = Field(
        "",
        description="Where nodes listen: an interface, like eth1, or addresses, like fd00::/8; empty: the engine's.",
    )
    sites: list[Site] = Field([], description="Which nodes have their place on which machines.")
    start_timeout: Duration = Field(120 * _S, description="How long the nodes may take to start.")


class SlurmOptions(MachinesOptions):
    """Nodes on the machines of the Slurm allocation in which the run is started."""

    kind: Literal["slurm"] = "slurm"
    srun: list[str] = Field([], description="More options for srun, like --gpus=4.")


class RayOptions(MachinesOptions):
    """Nodes on the machines of a Ray cluster."""

    kind: Literal["ray"] = "ray"
    address: str = Field("", description="The cluster; empty: RAY_ADDRESS, or a cluster of this machine alone.")
    machines: int | None = Field(None, ge=1, description="How many machines; by default all that there are.")
    cpus_per_node: float = Field(
        0, ge=0, description="How many cores are kept for a node; a machine keeps at least one."
    )
    gpus_per_node: float = Field(0, ge=0, description="Which share of a GPU is kept for a node, like 0.25.")


COMPUTE = Choices(
    "compute time", listed("netdfl.worlds.simulated.compute", "COMPUTE"), default="constant", short=("constant", "time")
)


class Stragglers(Strict):
    """Slow nodes in simulated time: the listed ones, and a randomly drawn share of all."""

    factor: float = Field(5.0, ge=1, description="How many times as long their local rounds take.")
    fraction: float = Field(0.0, ge=0, le=1, description="Share of all clients, drawn from the seed.")
    nodes: Nodes = Field([], description="Nodes that are slow in any case.")


class SimulatedOptions(WorldOptions):
    """The whole fleet in one process on a virtual clock: exact, repeatable bit for bit."""

    kind: Literal["simulated"] = "simulated"
    compute: Annotated[Part, COMPUTE] = Field(
        {"kind": "constant"},
        validate_default=True,
        description="What a local round takes in virtual time, like 10ms; `netdfl list compute` has the kinds.",
    )
    stragglers: Stragglers | None = Field(None, description="Nodes that compute slower than the others.")
    as_others: Nodes = Field(
        [], description="Nodes whose local rounds take the median of what those of the others take in that round."
    )
    no_deadline: Nodes = Field(
        [],
        description="Nodes without a deadline, whose waits end as soon as nothing that they lack is under way or can "
        "still be sent.",
    )
    keeps_state: Nodes = Field(
        [],
        description="Nodes that keep their state at the end of each round though no event restarts them with it; they "
        "acknowledge a message once what they made of it is kept.",
    )
    overtaking: bool = Field(
        False, description="Nodes count on messages that overtake earlier ones of their link, even if no rule lets any."
    )
    luck: int | None = Field(
        None, ge=0, description="The seed of luck on links alone, where another one is wanted than all else has."
    )
    order: dict[Instant, list[Thing]] | None = Field(
        None,
        description="What is due at one instant happens one by one, each with what it brings about before the next: "
        "first what is named here by time, as {15ms: [2->1, 0->1]}, messages by their links, timers by their names "
        "(wait 1 0 0: the deadline of node 1 in step 0 of round 0); null: messages come together, then timers.",
    )


class NamespacesOptions(PacketOptions, LocalOptions):
    """A Linux network namespace per node; links emulated below TCP."""

    kind: Literal["namespaces"] = "namespaces"
    engine: Literal["auto", "tun", "netem"] = Field(
        "auto", description="What carries the packets: netdfl's forwarder, or the kernel's own queues."
    )
    tcp: Literal["cubic", "reno", "bbr"] = Field("cubic", description="TCP's congestion control on every node.")


class ContainersOptions(PacketOptions):
    """A container per node by Docker Compose; links emulated below TCP."""

    kind: Literal["containers"] = "containers"
    image: str = Field("", description="The image of a node; empty: it is built where there is none yet.")
    tls: bool = Field(False, description="Mutual TLS between nodes, and with the supervisor: a certificate a life.")
    cpus: float | None = Field(
        None, gt=0, description="How many cores a container may use; by default as many as it can."
    )
    memory: Size | None = Field(None, description="How much memory a container may use, like 2GiB; by default all.")
    tcp: Literal["cubic", "reno", "bbr"] = Field(
        "cubic", description="TCP's congestion control, where links act on packets."
    )
    start_timeout: Duration = Field(300 * _S, description="How long the nodes may take to start.")


class Oracle(Choice):
    """The supervisor tells the nodes at once who is gone; the result names this detector."""

    kind: Literal["oracle"] = "oracle"


class Heartbeat(Choice):
    """Nodes send each other heartbeats over the emulated links; they cost bytes."""

    kind: Literal["heartbeat"] = "heartbeat"
    every: Duration = Field(_S, gt=0, description="Time between two heartbeats of a node.")
    misses: int = Field(5, ge=1, description="How many heartbeats in a row must be missed.")


class NoDetector(Choice):
    """No failure detector: no node is ever considered gone."""

    kind: Literal["none"] = "none"


WORLDS = by_kind(ProcessesOptions, SimulatedOptions, NamespacesOptions, ContainersOptions, SlurmOptions, RayOptions)
FailureDetector = Oracle | Heartbeat | NoDetector
DETECTORS = by_kind(Oracle, Heartbeat, NoDetector)


class WorldChoices(Choices):
    """The field that chooses where a fleet runs (its world).

    A user's own world is an object with `make`, and with `options` if the world has keys of its own.
    """

    @property
    def open(self) -> bool:
        """Whether the world may be a user's own: always true."""
        return True

    def _own(self, kind: str, entry: object) -> type[Choice]:
        options = getattr(entry, "options", WorldOptions)
        if not callable(getattr(entry, "make", None)):
            raise refused(f"the world {kind!r} is a {type(entry).__name__}", "a WorldEntry, with a `make`")
        if not (isinstance(options, type) and issubclass(options, WorldOptions)):
            raise refused(f"the world {kind!r} has options of another kind", "a class of WorldOptions")
        model = _options_of(kind, options)
        model.entry = entry
        return model


@cache
def _options_of(kind: str, options: type[WorldOptions]) -> type[WorldOptions]:
    return make_model(options.__name__, options, options.__doc__, {"kind": (Literal[kind], Field(kind))})


WORLD = WorldChoices("world", lambda: WORLDS, default="processes")
DETECTOR = Choices("failure detector", lambda: DETECTORS, default="oracle")
