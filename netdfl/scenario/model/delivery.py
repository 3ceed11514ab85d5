"""What becomes of a message that is lost: the models of `delivery`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from netdfl.core.units import format_time, parse_time_ns
from netdfl.scenario.model.choices import Choices
from netdfl.scenario.model.fields import Choice


def _timeout(value: object) -> int | Literal["auto"]:
    if value == "auto":
        return "auto"
    try:
        timeout_ns = parse_time_ns(value)
    except ValueError as exc:
        raise ValueError(f"{exc}, or auto") from exc
    if timeout_ns <= 0:
        raise ValueError(f"a timeout of {value} would send without end; write a time above 0, or auto")
    return timeout_ns


def _written(value: int | str) -> str:
    return format_time(value) if isinstance(value, int) else value


Timeout = Annotated[
    int | Literal["auto"],
    PlainValidator(_timeout),
    PlainSerializer(_written, when_used="json"),
    WithJsonSchema({"type": "string", "examples": ["auto", "200ms"]}),
]


class Automatic(Choice):
    """Push-sum over links that lose messages survives it where the graph lets it; everything else is plain."""

    kind: Literal["auto"] = "auto"


class Plain(Choice):
    """A message is sent once. What is lost is lost: a vector for gossip, mass for push-sum."""

    kind: Literal["plain"] = "plain"


class AcknowledgedDelivery(Choice):
    """Receivers acknowledge over the reverse link; what is not acknowledged is sent again."""

    kind: Literal["acknowledged"] = "acknowledged"
    timeout: Timeout = Field(
        "auto", description="How long to wait for an acknowledgement at first; auto adapts to them."
    )
    attempts: int = Field(20, ge=0, le=200, description="How many times an unacknowledged message is sent again.")


class RunningSumsDelivery(Choice):
    """Push-sum sends the sum of all its shares on an edge, so the next message makes up for a lost one."""

    kind: Literal["running_sums"] = "running_sums"


Delivery = Automatic | Plain | AcknowledgedDelivery | RunningSumsDelivery
DELIVERIES = {
    "auto": Automatic,
    "plain": Plain,
    "acknowledged": AcknowledgedDelivery,
    "running_sums": RunningSumsDelivery,
}
DELIVERY = Choices("delivery", lambda: DELIVERIES, default="auto")
