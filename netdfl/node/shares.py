"""The push-sum weight in messages, which is counted in addition to the weight in a node's state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from netdfl.core.types import Message, Payload


def weight_in(payloads: Iterable[Payload]) -> float:
    """Return the total push-sum weight in payloads; a weight that is not a float counts as 0."""
    weights = [payload.meta.get("w") for payload in payloads]
    return sum([weight for weight in weights if isinstance(weight, float)])


def unacknowledged(messages: Sequence[Message]) -> dict[str, float]:
    """Return the figures of unacknowledged messages: their number and the push-sum weight in them.

    A receiver may have taken some of them already.
    """
    weight = weight_in(message.payload for message in messages)
    return {"limbo": float(len(messages)), "limbo_weight": float(weight)}
