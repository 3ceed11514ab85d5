"""Push-sum weight in messages, which a node's figures count beside the weight in its state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from netdfl.core.types import Message, Payload


def weight_in(payloads: Iterable[Payload]) -> float:
    """Return the push-sum weight that payloads carry together; a weight that is no float counts as 0."""
    weights = [payload.meta.get("w") for payload in payloads]
    return sum([weight for weight in weights if isinstance(weight, float)])


def unacknowledged(messages: Sequence[Message]) -> dict[str, float]:
    """Return the figures of unacknowledged messages: their number and the push-sum weight in them.

    A receiver may have taken some of them already.
    """
    weight = weight_in(message.payload for message in messages)
    return {"limbo": float(len(messages)), "limbo_weight": float(weight)}
