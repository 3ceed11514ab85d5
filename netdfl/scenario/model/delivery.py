"""What becomes of a message that is lost: the models of `delivery`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from netdfl.scenario.model.choices import Choices
from netdfl.scenario.model.fields import Choice, by_kind, parse_time_or, plain, written_time


def _timeout(value: object) -> int | Literal["auto"]:
    what = f"a timeout of {value} would send without end; write a time above 0, or auto"
    return "auto" if value == "auto" else parse_time_or(value, "auto", what)


Timeout = Annotated[
    int | Literal["auto"], *plain(_timeout, written_time, {"type": "string", "examples": ["auto", "200ms"]})
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
DELIVERIES = by_kind(Automatic, Plain, AcknowledgedDelivery, RunningSumsDelivery)
DELIVERY = Choices("delivery", lambda: DELIVERIES, default="auto")
