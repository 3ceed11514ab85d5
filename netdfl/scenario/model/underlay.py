"""The block `underlay`: sites, the core links between them, and the nodes on them."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from netdfl.scenario.model.choices import refused
from netdfl.scenario.model.fields import (
    QUANTITIES,
    Duration,
    InputFile,
    Share,
    Strict,
    parse_time_or,
    plain,
    written_time,
)


def _above_zero(rate_bps: float) -> float:
    if rate_bps <= 0:
        raise ValueError("a rate of 0 carries nothing; give a rate above 0, or cut the link by an event")
    return rate_bps


Queue = Annotated[int, *QUANTITIES["size"], Field(ge=0)]
Rate = Annotated[float, *QUANTITIES["rate"], AfterValidator(_above_zero)]


def _reroute(value: object) -> int | None:
    words = "none"
    return None if value in (None, words) else parse_time_or(value, words, "routes take time to be found: above 0")


Reroute = Annotated[
    int | None, *plain(_reroute, written_time, {"type": ["string", "null"], "examples": ["none", "5s"]})
]


def _place(value: object) -> object:
    return {str(key): site for key, site in value.items()} if isinstance(value, dict) else value


Placed = Annotated[
    Literal["in order", "by group", "random"] | dict[str, str],
    BeforeValidator(_place),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["in order", "by group", "random"]},
                {"type": "object", "additionalProperties": {"type": "string"}},
            ]
        }
    ),
]


class CoreEntry(Strict):
    """One core link: `paris--zurich` both ways, each with a capacity of its own, or `paris->zurich` one way."""

    latency: Duration = Field(0, description="The delay of the link.")
    rate: Rate | None = Field(None, description="What all that cross it share; unlimited by default.")
    loss: Share = Field(0.0, description="The share of messages that are lost on it.")
    queue: Queue | None = Field(None, description="The most bytes that wait before the link; unlimited by default.")


class UnderlayPart(Strict):
    """The network below the links: messages between nodes take the shortest route over core links, which they share."""

    file: InputFile | None = Field(None, description="A .graphml, .gml or .json file of the sites and core links.")
    links: dict[str, CoreEntry] = Field(
        {}, description="Core links by name, like paris--zurich; what is said here goes before the file."
    )
    place: Placed = Field(
        "in order",
        description="The site of each node: {0..3: paris, 4: zurich}; by group (its name is the site's); random "
        "(seeded); or in order, site after site.",
    )
    latency: Literal["given", "distance"] = Field(
        "given",
        description="Where the file says no latency of a link: given refuses that; distance takes 5 us a kilometre.",
    )
    core: Rate | None = Field(None, description="The rate of core links where the file says none.")
    access: Rate | None = Field(None, description="The uplink and the downlink of every node where links say none.")
    delay_unit: Literal["s", "ms", "us"] = Field("ms", description="Of delays without a unit in the file.")
    rate_unit: Literal["bit", "kbit", "Mbit", "Gbit"] = Field("Mbit", description="Of rates without a unit there.")
    reroute: Reroute = Field(
        None, description="How long after a core link fails or returns routes are found anew; none: they stay."
    )

    @model_validator(mode="after")
    def _has_links(self) -> Self:
        if self.file is None and not self.links:
            raise refused("an underlay without core links", "", "give file: x.graphml, or links: {paris--zurich: ...}")
        return self
