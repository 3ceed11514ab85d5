"""Push-sum weight in messages: what is this node's until it leaves, and what nobody has acknowledged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from netdfl.core.types import Message, Payload


def weight_in(payloads: Iterable[Payload]) -> float:
    """Return the push-sum weight that payloads carry together; one that is no float is none."""
    weights = [payload.meta.get("w") for payload in payloads]
    return sum([weight for weight in weights if isinstance(weight, float)])


def unacknowledged(messages: Sequence[Message]) -> dict[str, float]:
    """How many messages a node has unacknowledged, and the push-sum weight in them; some of it may have been taken."""
    weight = weight_in(message.payload for message in messages)
    return {"limbo": float(len(messages)), "limbo_weight": float(weight)}
