"""Algorithms of a fleet in which one member errs: what it sends is not what the method says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from netdfl.algorithms.base import Algorithm, Entry
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.core.types import ITEM_BYTES, Array, NodeId, Outbox, Payload, View
from netdfl.training.base import Update

Error: TypeAlias = Callable[[NodeId, Payload], Payload]
"""A function that returns what a member sends to a node instead of its payload."""


def numbers(array: Array) -> np.ndarray[Any, Any]:
    """Return the numbers of an array of a message."""
    return np.frombuffer(array.data, array.dtype).reshape(array.shape)


def packed(values: np.ndarray[Any, Any]) -> Array:
    """Return numbers as an array of a message."""
    assert values.dtype.name in ITEM_BYTES
    return Array(values.dtype.name, values.shape, memoryview(values.tobytes()))


def each_array(change: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]) -> Error:
    """Change every array of floats."""

    def err(to: NodeId, payload: Payload) -> Payload:
        found = {name: packed(change(numbers(a))) if "float" in a.dtype else a for name, a in payload.arrays.items()}
        return Payload(found, payload.meta)

    return err


def weighs(w: object) -> Error:
    """Say another push-sum weight."""
    return lambda to, payload: Payload(payload.arrays, {**payload.meta, "w": w})  # type: ignore[dict-item]


def of_type(dtype: str, value: float | None = None) -> Error:
    """Send numbers of another type; each of them `value`, if it is given."""
    return each_array(lambda x: x.astype(dtype) if value is None else np.full(x.shape, value, dtype))


ERRORS: Mapping[str, Error] = {
    "none": lambda to, payload: payload,
    "w -1": weighs(-1.0),
    "w 0": weighs(0.0),
    "w 1000": weighs(1000.0),
    "w 11": weighs(11.0),
    "w text": weighs("all of it"),
    "too short": each_array(lambda x: x[:-1]),
    "whole numbers": of_type("int32"),
    "other floats": each_array(lambda x: x.astype("float32" if x.dtype == np.float64 else "float64")),
    "no array": lambda to, payload: Payload({}, payload.meta),
    "huge": each_array(lambda x: np.full_like(x, 0.9 * np.finfo(x.dtype).max)),
    "1e300": of_type("float64", 1e300),
    "1e100": of_type("float64", 1e100),
    "two faces": lambda to, payload: each_array(lambda x: x + to % 2)(to, payload),
    "to each another": lambda to, payload: each_array(lambda x: x * 1000.0 ** (to % 7))(to, payload),
}


@dataclass(frozen=True)
class Erring:
    """A mixing whose node `node` sends what `error` makes of its payloads."""

    inner: Any
    node: int
    error: str

    def __getattr__(self, name: str) -> Any:
        """Return whatever else the mixing has."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def outgoing(self, state: Any, update: Update, step: int, view: View) -> tuple[Any, Outbox]:
        """Return the mixing's messages, or what the erring member makes of them."""
        state, outbox = self.inner.outgoing(state, update, step, view)
        if view.node != self.node:
            return state, outbox
        return state, {to: ERRORS[self.error](to, payload) for to, payload in outbox.items()}


def _erring(name: str) -> Entry:
    base = ALGORITHMS[name]

    def build(exchange: Any, /, *, node: int = 1, error: str = "none") -> Algorithm:
        algorithm = base.build(exchange)
        return replace(algorithm, mixing=Erring(algorithm.mixing, node, error))

    return Entry(build, base.family, base.needs, base.source, scheme=base.scheme)


sgp, dpsgd, choco_sgd, asy_sgp = (_erring(name) for name in ("sgp", "dpsgd", "choco_sgd", "osgp"))
