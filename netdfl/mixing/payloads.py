"""Vectors and extras as payloads and back: the one place that names the arrays of a message."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from netdfl.compression.arrays import snapshot, to_tensor
from netdfl.core.errors import MalformedMessage
from netdfl.core.types import Message, Outbox, Payload, Scalar, View
from netdfl.training.base import Extras

MODEL = "x"


def pack(x: Tensor, extras: Extras | None = None, meta: Mapping[str, Scalar] | None = None) -> Payload:
    """Copy `x` and `extras` into a payload that nobody writes to any more."""
    arrays = {MODEL: snapshot(x)}
    for name, value in (extras or {}).items():
        arrays["extra." + name] = snapshot(value)
    return Payload(arrays, meta or {})


def vector(message: Message, like: Tensor, name: str = MODEL) -> Tensor:
    """The vector `name` of a message, checked against `like`'s shape and dtype; shares its memory.

    Raises MalformedMessage if it is missing or of another shape or dtype.
    """
    array = message.payload.arrays.get(name)
    if array is None or array.shape != tuple(like.shape) or array.dtype != str(like.dtype).removeprefix("torch."):
        got = "nothing" if array is None else f"{array.dtype}{list(array.shape)}"
        raise MalformedMessage(
            f"message {message.src}->{message.dst} of round {message.round}: expected vector {name!r} as "
            f"{str(like.dtype).removeprefix('torch.')}{list(like.shape)}, got {got}",
            message,
        )
    return to_tensor(array).to(like.device)


def extras_of(message: Message, like: Tensor) -> dict[str, Tensor]:
    """The extras that came with a message, by name."""
    names = [name for name in message.payload.arrays if name.startswith("extra.")]
    return {name.removeprefix("extra."): vector(message, like, name) for name in names}


def number(message: Message, name: str) -> float:
    """A finite number of the message's metadata. Raises MalformedMessage."""
    value = message.payload.meta.get(name)
    if not isinstance(value, float | int) or not abs(value) < float("inf"):
        raise MalformedMessage(
            f"message {message.src}->{message.dst} of round {message.round}: "
            f"expected a finite number {name!r}, got {value!r}",
            message,
        )
    return float(value)


def to_all(view: View, payload: Payload) -> Outbox:
    """The same payload for every out-neighbor."""
    return dict.fromkeys(view.out_neighbors, payload)
