"""The blocks `topology`, `compression`, `wait` and `delivery`: who sends to whom, and how."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from netdfl.algorithms.exchange import ExtrasTravel, OnNotFinite, Scheme
from netdfl.core.types import OnMissing
from netdfl.scenario.model.choices import Choices, listed
from netdfl.scenario.model.fields import (
    Choice,
    InputFile,
    Strict,
    by_kind,
    parse_nodes,
    parse_time_or,
    plain,
    written_time,
)
from netdfl.scenario.model.parts import Part

WEIGHTS = Choices("weights", listed("netdfl.topology.catalog", "WEIGHTS"), default="auto")
SELECTIONS = Choices("selection", listed("netdfl.topology.catalog", "SELECTIONS"), default="all")


class TopologyPart(Part):
    """The graph of each round, its weights, and the selection of a node's receivers among its neighbors."""

    weights: Annotated[Part, WEIGHTS] = Field(
        {"kind": "auto"}, validate_default=True, description="Mixing weights; auto takes those that suit the graph."
    )
    selection: Annotated[Part, SELECTIONS] = Field(
        {"kind": "all"}, validate_default=True, description="Which of its out-neighbors a node sends to."
    )
    participation: float = Field(
        1.0, gt=0, description="Clients that a server samples each round: up to 1 a fraction, above 1 a count."
    )


class CompressionPart(Part):
    """The compressor of messages, and the scheme that makes up for its error."""

    scheme: Scheme = Field(
        "auto", description="auto, or for gossip choco or deepsqueeze, push-sum edge or push_sum, a server plain or ef."
    )
    gamma: Annotated[float, Field(gt=0, le=1)] | Literal["auto"] = Field(
        "auto", description="Step size of compressed gossip."
    )
    extras: ExtrasTravel = Field(
        "exact", description="How a change of a control variate, reported to a server beside the model, travels."
    )


TOPOLOGY = Choices("topology", listed("netdfl.topology.catalog", "TOPOLOGIES"), base=TopologyPart)
COMPRESSION = Choices(
    "compression", listed("netdfl.compression.catalog", "COMPRESSORS"), base=CompressionPart, optional=True
)


def _need(value: object) -> Literal["all", "any", "none"] | int:
    if value in ("all", "any", "none"):
        return value
    count = value.get("quorum") if isinstance(value, dict) and len(value) == 1 else None
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ValueError(f"{value!r} is not a wait; write all, any, none, or {{quorum: k}} with k of 1 or more")
    return count


def _written_need(value: str | int) -> str | dict[str, int]:
    return {"quorum": value} if isinstance(value, int) else value


def _deadline(value: object) -> int | Literal["auto"] | None:
    if value in ("auto", "none", None):
        return "auto" if value == "auto" else None
    what = f"a deadline of {value} never waits; write a time above 0, auto, or none"
    return parse_time_or(value, "auto, or none", what)


_QUORUM = {
    "type": "object",
    "properties": {"quorum": {"type": "integer", "minimum": 1}},
    "required": ["quorum"],
    "additionalProperties": False,
}
Need = Annotated[
    Literal["all", "any", "none"] | int,
    *plain(_need, _written_need, {"anyOf": [{"enum": ["all", "any", "none"]}, _QUORUM]}),
]
Deadline = Annotated[
    int | Literal["auto"] | None,
    *plain(_deadline, written_time, {"type": ["string", "null"], "examples": ["auto", "none", "5s"]}),
]


class Wait(Strict):
    """The messages that a node waits for in a round, for how long, and the treatment of missing ones."""

    need: Need = Field("all", alias="for", description="all, any, none, or {quorum: k}.")
    deadline: Deadline = Field(
        "auto", description="auto asks who is late whether it will still send; none never gives up; or a time."
    )
    on_missing: OnMissing = Field(
        "self", description="Where the weight of a neighbor goes that did not arrive in time."
    )
    on_not_finite: OnNotFinite = Field(
        "refuse",
        description="A message with NaN or infinity in it: refuse (treated as missing, its sender named), count "
        "(mixed, its sender named), or pass (mixed).",
    )
    on_stall: Literal["stop", "skip", "resend"] = Field(
        "stop",
        description="What ends a wait that nothing ends any more: stop the run, skip the neighbor, send again.",
    )
    announce: bool | None = Field(
        None,
        description="Where receivers can't know who will send: tell those that get nothing, by notices that cost "
        "bytes. By default where all are waited for without a fixed deadline.",
    )
    probes: Deadline = Field(
        "auto",
        description="How long a node waits before it asks those it waits for, by messages, whether they wait for it "
        "in turn: a time; none; auto is 2 s where there is no supervisor to watch, else none.",
    )
    stale: int = Field(0, ge=0, description="How many rounds old a gossip message may be and still be mixed.")


Nodes = Annotated[list[int], BeforeValidator(parse_nodes), WithJsonSchema({"examples": [3, "0..7", [0, "4..7"]]})]


class LinksFrom(Strict):
    """Link rules from a file: a network's GraphML, GML or JSON, or a CSV file of measured delays, rates or losses."""

    file: InputFile = Field(description="A .graphml, .xml, .gml or .json file; anything else is read as CSV.")
    by_distance: bool = Field(
        False, description="Where the file has places or lengths and no delay: light in a fibre, 5 us a kilometre."
    )
    values: Literal["rtt", "latency", "rate"] = Field(
        "rtt", description="What the cells of a matrix are; a round trip counts half each way."
    )
    delay_unit: Literal["s", "ms", "us"] = Field("ms", description="Of delays without a unit.")
    rate_unit: Literal["bit", "kbit", "Mbit", "Gbit"] = Field("Mbit", description="Of rates without a unit.")


def _timeout(value: object) -> int | Literal["auto"]:
    what = f"a timeout of {value} would send without end; write a time above 0, or auto"
    return "auto" if value == "auto" else parse_time_or(value, "auto", what)


Timeout = Annotated[
    int | Literal["auto"], *plain(_timeout, written_time, {"type": "string", "examples": ["auto", "200ms"]})
]


class Automatic(Choice):
    """Automatic delivery: push-sum survives lossy links where the graph permits; other methods use plain delivery."""

    kind: Literal["auto"] = "auto"


class Plain(Choice):
    """A message is sent once. A lost one is lost for good: a vector for gossip, mass for push-sum."""

    kind: Literal["plain"] = "plain"


class AcknowledgedDelivery(Choice):
    """Receivers acknowledge over the reverse link; unacknowledged messages are sent again."""

    kind: Literal["acknowledged"] = "acknowledged"
    timeout: Timeout = Field(
        "auto", description="How long to wait for an acknowledgement at first; auto adapts to them."
    )
    attempts: int = Field(20, ge=0, le=200, description="How many times an unacknowledged message is sent again.")


class RunningSumsDelivery(Choice):
    """Push-sum sends the sum of all its shares on an edge, so the next message makes up for a lost one."""

    kind: Literal["running_sums"] = "running_sums"


Delivery = Automatic | Plain | AcknowledgedDelivery | RunningSumsDelivery
DELIVERIES = by_kind(Automatic, Plain, AcknowledgedDelivery, RunningSumsDelivery)
DELIVERY = Choices("delivery", lambda: DELIVERIES, default="auto")
