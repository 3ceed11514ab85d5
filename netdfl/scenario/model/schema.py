"""The scenario: one mapping that describes a fleet, its task, its network and its faults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    Tag,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import InitErrorDetails

from netdfl.record.judge import FIGURES, SHARES, is_measured
from netdfl.record.sampling import WORDS, Sampling
from netdfl.scenario.model.algorithm import ALGORITHMS, AlgorithmPart
from netdfl.scenario.model.choices import nearest, refused
from netdfl.scenario.model.explore import Explore
from netdfl.scenario.model.fields import Bytes, Seconds, Share, Strict, make_model
from netdfl.scenario.model.links import EVENT, LinkEntry
from netdfl.scenario.model.network import (
    COMPRESSION,
    DELIVERY,
    TOPOLOGY,
    CompressionPart,
    Delivery,
    LinksFrom,
    Nodes,
    TopologyPart,
    Wait,
)
from netdfl.scenario.model.parts import Part
from netdfl.scenario.model.signatures import Record
from netdfl.scenario.model.task import TASK, Train, Training
from netdfl.scenario.model.underlay import UnderlayPart
from netdfl.scenario.model.world import DETECTOR, WORLD, FailureDetector, WorldOptions
from netdfl.transport.grpc.options import GrpcOptions

SCHEMA = "netdfl/1"
KEPT_BYTES = 64 << 20
"""The largest total size in bytes of all nodes' final models that are saved, unless the scenario decides otherwise."""
PACKET_PATIENCE = "20s"
"""The default of `keepalive_timeout` in gRPC where links lose packets: retransmissions delay the answer to a ping."""


class Bounds(Strict):
    """The bounds of a metric."""

    at_least: float | None = Field(None, description="The least that passes.")
    at_most: float | None = Field(None, description="The most that passes.")

    @model_validator(mode="before")
    @classmethod
    def _says_which(cls, data: object) -> object:
        if isinstance(data, int | float | str) and not isinstance(data, bool):
            raise refused(f"a bound of {data} does not say whether it is the least or the most", "", _bound(data))
        return data

    @model_validator(mode="after")
    def _can_be(self) -> Self:
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise refused(f"nothing is at least {self.at_least:g} and at most {self.at_most:g}", "", "swap the two")
        return self


def _bound(written: object) -> str:
    value = str(written).lstrip("<>= ")
    return f"write {{at_most: {value}}}" if str(written).lstrip().startswith("<") else f"write {{at_least: {value}}}"


class ShareBounds(Bounds):
    """The bounds of a share, such as an accuracy: from 0 to 1, or a percentage."""

    at_least: Share | None = Field(None, description="The least that passes, like 0.9 or 90%.")
    at_most: Share | None = Field(None, description="The most that passes.")


class ByteBounds(Bounds):
    """The bounds of a number of bytes."""

    at_least: Bytes | None = Field(None, description="The least that passes, like 9000 or 9kB.")
    at_most: Bytes | None = Field(None, description="The most that passes.")


class SecondBounds(Bounds):
    """The bounds of a time."""

    at_least: Seconds | None = Field(None, description="The least that passes, like 1.5 or 1500ms.")
    at_most: Seconds | None = Field(None, description="The most that passes.")


_BOUNDS: Mapping[str, type[Bounds]] = {
    **dict.fromkeys(SHARES, ShareBounds),
    "bytes_sent": ByteBounds,
    "duration_s": SecondBounds,
    "virtual_duration_s": SecondBounds,
}
"""The types of bounds for metrics that are no plain numbers, by the metric's name."""

Occurrence = Literal["none", "some", "any"]


class Expectation(Strict):
    """The conditions for a run to pass; an entry replaces its default, so an expected deadlock passes."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Bounds]

    died: Annotated[Nodes, Field(min_length=1)] | Occurrence = Field(
        "none", description="none, some, any, or exactly these nodes."
    )
    deadlock: Occurrence = Field("none", description="none, some (at least one must occur) or any.")
    stall: Occurrence = Field("none", description="Stalls left at the end: none, some or any.")
    unfinished: Occurrence = Field(
        "none", description="Nodes that should have finished and have not, without being stalled: none, some or any."
    )
    not_finite: Occurrence = Field(
        "none",
        description="Losses or models with NaN or infinity: none, some or any. Messages that were refused for it count "
        "where this is said, else where they were most.",
    )

    collapsed: Occurrence = Field("any", description="Accuracies that fell from their best: none, some or any.")
    diverged: Occurrence = Field("any", description="Figures that grew without bound: none, some or any.")
    weight_lost: Occurrence = Field("any", description="Push-sum weight that is gone: none, some or any.")

    @model_validator(mode="before")
    @classmethod
    def _measured(cls, data: object) -> object:
        """Accept known keys of `expect`, and metrics that a user's task defines; raise an error for any other key."""
        for key, value in data.items() if isinstance(data, dict) else ():
            if key not in cls.model_fields and not (isinstance(key, str) and is_measured(key)):
                error = InitErrorDetails(type="extra_forbidden", loc=(key,), input=value)
                raise ValidationError.from_exception_data("Expect", [error])
        return data

    @model_serializer(mode="wrap")
    def _only_what_was_said(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Return only the keys of `expect` that the user wrote.

        A default would be read back as an expectation, and any expectation turns the outcome `done` into `pass`.
        """
        said = self.model_fields_set | set(self.model_extra or ())
        return {key: value for key, value in handler(self).items() if key in said}

    @property
    def bounded(self) -> list[str]:
        """The names of all metrics with bounds in `expect`, including metrics of the task itself."""
        known = [name for name in FIGURES if getattr(self, name, None) is not None]
        return [*known, *(self.model_extra or ())]

    def entries(self) -> dict[str, object]:
        """Return the written expectations, by name, in the form that `netdfl.record.judge` compares with a run."""
        return self.model_dump(exclude_none=True)


if TYPE_CHECKING:
    Expect = Expectation
else:
    _figures = {
        name: (
            _BOUNDS.get(name, Bounds) | None,
            Field(None, description=f"Bounds on {name}."),
        )
        for name in FIGURES
    }
    Expect = make_model("Expect", Expectation, Expectation.__doc__, _figures)


class Evaluation(Strict):
    """The settings for evaluating the average model, and some of the nodes' own models."""

    every: int = Field(
        1, ge=1, description="Rounds between evaluations; by default 1 up to 50 rounds, else about 50 evaluations."
    )
    local: Literal["all", "none"] | Annotated[int, Field(ge=1)] = Field(
        "all",
        description="Local models that are tested too: all, none, or a sample of this size. Each on the whole "
        "test set (mean_local), and with its labels as frequent as in the node's own data (mean_personal).",
    )
    keep_models: bool | Literal["auto"] = Field(
        "auto",
        description="Whether every node's final model is kept, as models/NODE.safetensors of the run; auto: where a "
        f"model is trained and all nodes' together are no more than {KEPT_BYTES >> 20} MiB.",
    )


TARGETS = ("test_accuracy", "test_loss", "error", "consensus_distance", "weight_sum")
"""The metrics that `report.targets` may name, in addition to a task's own."""


class Target(Bounds):
    """A metric of the fleet, and the value that counts as reached."""

    metric: str = Field(description=f"{', '.join(TARGETS)}, or a figure of the task's own, like test_mae.")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if self.metric not in TARGETS and not is_measured(self.metric):
            raise refused(f"there is no figure {self.metric}", "", nearest(self.metric, [*TARGETS]))
        if (self.at_least is None) == (self.at_most is None):
            raise refused(f"the target of {self.metric} has no bound, or two", "", "give at_least or at_most")
        return self


class Report(Strict):
    """Settings that add to the report of a run: targets to reach, tags, places of nodes, TensorBoard files."""

    targets: list[
        Annotated[
            Annotated[Share, Field(gt=0), Tag("accuracy")] | Annotated[Target, Tag("figure")],
            Discriminator(lambda written: "figure" if isinstance(written, dict | Target) else "accuracy"),
        ]
    ] = Field(
        [],
        description="To which values rounds, bytes and seconds are reported: accuracies, like 0.9 or 90%, or "
        "{metric: test_mae, at_most: 0.5}.",
    )
    tags: list[Annotated[str, Field(min_length=1, max_length=60)]] = Field(
        [], max_length=20, description="Words by which the table of runs finds the run."
    )
    places: list[Annotated[list[float], Field(min_length=2, max_length=2)] | None] = Field(
        [],
        description="Where nodes are, each [latitude, longitude], for the picture of the fleet; by default as a "
        "GraphML or GML file of topology or links_from says.",
    )
    tensorboard: bool = Field(
        False, description="Write TensorBoard's event files into the run directory while the fleet runs."
    )


def _which_messages(written: object) -> object:
    if isinstance(written, str) and re.fullmatch(WORDS, written):
        return written
    raise refused(f"{written!r} does not say which messages", "all, per_link, or every 10th", "write every 10th, say")


class Recording(Strict):
    """The messages that are recorded. The totals of links and rounds, and the event log, count all messages."""

    messages: Annotated[str, BeforeValidator(_which_messages), Field(pattern=WORDS, examples=["every 10th"])] = Field(
        "all",
        description="all; every 10th (100th, ...) of those that were delivered at first sending; or per_link, none of "
        "these: only totals. What was not delivered, or was sent again, is always recorded.",
    )

    @property
    def sampling(self) -> Sampling:
        """The choice of messages to record, in the form that the store of message records needs."""
        return Sampling.of(self.messages)


class Checkpoint(Strict):
    """The interval at which a node's whole state is saved."""

    every: int | None = Field(None, ge=1, description="Rounds between checkpoints; none by default.")


def _with_default(data: dict[str, object], block: str, key: str, value: object) -> dict[str, object]:
    written = data.get(block, {})
    return {**data, block: {key: value, **written}} if isinstance(written, dict) else data


class Scenario(Strict):
    """One fleet: its data, model, algorithm, graph, links and faults."""

    schema_: Literal["netdfl/1"] = Field(alias="schema", description="The version of this format.")
    name: str = Field(pattern=r"^[A-Za-z0-9][\w.-]{0,199}$", description="A short name; runs are kept under it.")
    seed: int = Field(0, ge=0, description="The one seed from which every random stream comes.")
    nodes: int = Field(ge=1, le=1_000_000, description="Clients; with a server algorithm the server is one more.")
    rounds: int = Field(ge=1, description="Rounds that every node makes.")
    world: Annotated[WorldOptions, WORLD] = Field(
        {"kind": "processes"}, validate_default=True, description="Where the fleet runs."
    )
    task: Annotated[Train | Part, TASK] = Field(
        {"kind": "train"}, validate_default=True, description="What is computed."
    )
    algorithm: Annotated[AlgorithmPart, ALGORITHMS] = Field(description="The algorithm and its parameters.")
    topology: Annotated[TopologyPart, TOPOLOGY] = Field(description="The graph of each round.")
    compression: Annotated[CompressionPart | None, COMPRESSION] = Field(None, description="None by default.")
    delivery: Annotated[Delivery, DELIVERY] = Field(
        {"kind": "auto"}, validate_default=True, description="What becomes of a message that is lost."
    )
    wait: Wait = Field({}, validate_default=True, description="What a node waits for in a round.")
    links: dict[str, LinkEntry] = Field(
        {}, description="Rules by selector: default, `3->5` (directed), `0--1` (both ways), a node, groups, ranges."
    )
    links_from: LinksFrom | None = Field(
        None, description="A file with rules for links; what `links` says of the same link goes before."
    )
    underlay: UnderlayPart | None = Field(
        None, description="Sites and core links below the links of nodes, which messages that cross them share."
    )
    events: list[Annotated[dict[str, object], EVENT]] = Field(
        [], description="What happens when: faults, partitions, changes."
    )
    groups: dict[str, Nodes] = Field({}, description="Names for sets of nodes.")
    failure_detector: Annotated[FailureDetector, DETECTOR] = Field(
        {"kind": "oracle"}, validate_default=True, description="How nodes learn who is gone."
    )
    evaluation: Evaluation = Field({}, validate_default=True, description="When models are tested.")
    report: Report = Field({}, validate_default=True, description="What the report adds.")
    expect: Expect = Field({}, validate_default=True, description="What must hold for the run to pass.")
    explore: Explore = Field(
        {}, validate_default=True, description="What `netdfl explore` varies, and what it looks for."
    )
    transport: Annotated[GrpcOptions, Record()] = Field(
        {},
        validate_default=True,
        description="gRPC's own timers and limits, pinned and recorded; "
        f"keepalive_timeout is {PACKET_PATIENCE} where links act on packets of real connections.",
    )
    record: Recording = Field({}, validate_default=True, description="Which messages are recorded.")
    checkpoint: Checkpoint = Field({}, validate_default=True, description="How often state is saved.")

    @model_validator(mode="before")
    @classmethod
    def _what_follows(cls, data: object) -> object:
        """Fill in defaults that depend on other keys: an interval for about fifty evaluations, a longer keepalive."""
        if not isinstance(data, dict):
            return data
        rounds, world = data.get("rounds"), WORLD.normal(data.get("world"))
        if isinstance(rounds, int):
            data = _with_default(data, "evaluation", "every", max(1, -(-rounds // 50)))
        if isinstance(world, dict) and world.get("kind") in ("namespaces", "containers"):
            if world.get("loss_layer", "packet") == "packet":
                data = _with_default(data, "transport", "keepalive_timeout", PACKET_PATIENCE)
        return data

    _file: Path | None = PrivateAttr(None)
    _folder: Path = PrivateAttr(default_factory=Path.cwd)
    _notices: tuple[str, ...] = PrivateAttr(())

    @property
    def file(self) -> Path | None:
        """The file from which the scenario was read; None if there was none."""
        return self._file

    @property
    def folder(self) -> Path:
        """The folder of the user's modules: the scenario file's folder, or the one given with a mapping."""
        return self._folder

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices about side effects of overrides and likely mistakes, one sentence each."""
        return self._notices

    @property
    def has_server(self) -> bool:
        """Whether the algorithm has a server, which is then the last node."""
        return self.algorithm.traits.family == "server"

    @property
    def device(self) -> str:
        """The device for training: auto, cpu, cuda or cuda:N."""
        return self.task.device if isinstance(self.task, Training) else "cpu"

    @property
    def batching(self) -> Literal["exact", "auto"]:
        """How nodes that share a process train: as if one by one (`exact`), or many at once, equal up to rounding."""
        return self.task.batching if isinstance(self.task, Training) else "exact"

    @property
    def num_nodes(self) -> int:
        """The number of all nodes, the server included."""
        return self.nodes + self.has_server
