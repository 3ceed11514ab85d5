"""The push-sum weight in messages under way, which counts besides the weight in the nodes' states."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from netdfl.core.types import Message, Payload


def weight_in(payloads: Iterable[Payload]) -> float:
    """Return the sum of the push-sum weights in payloads; a weight that is not a float counts as 0."""
    weights = [payload.meta.get("w") for payload in payloads]
    return sum([weight for weight in weights if isinstance(weight, float)])


def weight_alone(payload: Payload) -> Payload:
    """Return a payload with only the push-sum weight of `payload`; an empty one if the weight is not a float."""
    weight = payload.meta.get("w")
    return Payload(meta={"w": weight} if isinstance(weight, float) else {})


def unacknowledged(messages: Sequence[Message]) -> dict[str, float]:
    """Return two metrics of unacknowledged messages, by name: their number, and the push-sum weight in them.

    The weight may count twice, as receivers may have taken some of these messages already.
    """
    weight = weight_in(message.payload for message in messages)
    return {"limbo": float(len(messages)), "limbo_weight": float(weight)}
