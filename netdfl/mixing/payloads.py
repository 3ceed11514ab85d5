"""Conversion of vectors and extras to payloads and back: the one place that names the arrays of a message.

A payload that several receivers of this process share is decoded once: `_decoded` keeps the results by payload.

Relies on: payloads that nobody changes, which their receivers in one process share.

Why: In a simulated fleet all neighbors get one payload, and decoding it for each of them was a notable part of what a
message cost. The results are freed with their payload, which is referred to weakly. Numbers that a peer sends are
checked here, where they are read, because an absurd one would otherwise be mixed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from math import hypot, inf, isfinite, sqrt
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard, TypeVar
from weakref import ref

import numpy as np

from netdfl.compression.base import Compressor, EncodedVector, add_to
from netdfl.compression.vector import FEW_BYTES, SHORT_BYTES, Vector, of_array, to_array
from netdfl.core.errors import MalformedMessage
from netdfl.core.tables import lazy_module
from netdfl.core.types import Array, Inbox, Message, NodeId, Outbox, Payload, Scalar, View
from netdfl.training.base import Extras

if TYPE_CHECKING:
    from torch import Tensor

    from netdfl.compression import arrays
else:
    arrays = lazy_module("netdfl.compression.arrays")

T = TypeVar("T")
MODEL = "x"
EXTRA = "extra."
CODE = "code"
FOLLOWED = "followed"
PASSES = "passes"
MOST_PASSES = 4
LONGEST: Mapping[str, float] = {"float64": sqrt(sys.float_info.max)}
"""The largest usable norm of a vector, by its number type: beyond it the square of the norm is infinite.

Vectors of narrower types than float64 are computed with in float32.
"""
_LONGEST_OF_MOST = sqrt((2 - 2**-23) * 2.0**127)
NOT_NUMBERS = "NaN or infinity"
MASS_A_NODE = 2
"""The most push-sum weight that a message may carry, divided by the number of nodes in the fleet.

A fleet begins with weight 1 for each node, and a node that lost its state may rejoin with 1 more, in place of what it
lost.
"""
_NOTHING = (None, None)
_Table: TypeAlias = "dict[int, tuple[Any, ref[Payload] | None]]"


@lru_cache(maxsize=1024)
def _decoded(*what: object) -> _Table:
    """Return the table of decoded contents of payloads, by the payload's `id`; `what` names the kind of contents.

    Receivers in this process share the table. An entry also has a weak reference to its payload, whose callback removes
    the entry once the payload is freed.
    """
    return {}


def _found(decoded: _Table, payload: Payload) -> Any:
    """Return what was decoded from a payload before; None if nothing was."""
    return decoded.get(id(payload), _NOTHING)[0]


def _keep(decoded: _Table, payload: Payload, found: T) -> T:
    """Keep `found`, which was decoded from a payload, until the payload is freed; return `found`."""
    decoded[id(payload)] = found, ref(payload, partial(decoded.pop, id(payload)))
    return found


def pack(x: Tensor, extras: Extras | None = None, meta: Mapping[str, Scalar] | None = None) -> Payload:
    """Copy `x` and `extras` into a payload, which is immutable from then on."""
    taken = {MODEL: _snapshot(x)}
    for name, value in (extras or {}).items():
        taken[EXTRA + name] = _snapshot(value)
    return Payload(taken, meta or {})


def share(x: Tensor, factor: float, meta: Mapping[str, Scalar]) -> Payload:
    """Return a payload with `factor` times `x`, computed in one pass."""
    return Payload({MODEL: to_array(x * factor) if isinstance(x, Vector) else arrays.scaled(x, factor)}, meta)


def _snapshot(x: Tensor) -> Array:
    return to_array(x) if isinstance(x, Vector) else arrays.snapshot(x)


def vector(message: Message, like: Tensor, name: str = MODEL) -> Tensor:
    """Return the vector `name` of a message, checked against `like`'s shape and dtype; shares its memory.

    Raises MalformedMessage if it is missing or of another shape or dtype.
    """
    decoded = _decoded(name, like.dtype, like.shape)
    found: Tensor | None = _found(decoded, message.payload)
    if found is None:
        found = _keep(decoded, message.payload, _read(message, like, name))
    return found if like.is_cpu else found.to(like.device)


def vectors(inbox: Inbox, like: Tensor) -> dict[NodeId, Tensor]:
    """Return the vectors of an inbox by their senders, each read by `vector`."""
    came: dict[NodeId, Tensor] = {}
    decoded = _decoded(MODEL, like.dtype, like.shape) if like.is_cpu else {}
    for message in inbox.messages:
        found, _ = decoded.get(id(message.payload), _NOTHING)  # without a call of `vector` for each
        came[message.src] = vector(message, like) if found is None else found
    return came


def _read(message: Message, like: Tensor, name: str) -> Tensor:
    array, dtype = message.payload.arrays.get(name), _name(like.dtype)
    if array is None or array.shape != tuple(like.shape) or array.dtype != dtype:
        got = "nothing" if array is None else f"{array.dtype}{list(array.shape)}"
        expected = f"{dtype}{list(like.shape)}"
        raise absurd(message, f"vector {name!r} as {expected}", got)
    return of_array(array) if isinstance(like, Vector) else arrays.to_tensor(array)


@cache
def _name(dtype: object) -> str:
    """Return the name that `Array.dtype` uses for a dtype of numpy or torch."""
    return str(dtype).removeprefix("torch.")


def is_finite(payload: Payload) -> bool:
    """Return whether all numbers of a payload, and the squared length of each vector, are finite."""
    return length_of(payload) < inf


def length_of(payload: Payload) -> float:
    """Return the Euclidean length of a payload's longest vector; infinity if it is not a finite number.

    With a longer vector no norm and no loss can be computed. The payload's numbers are read once; the length is cached
    in it.
    """
    if payload.length is None:
        most = 0.0
        for array in payload.arrays.values():
            if "float" not in array.dtype:
                continue
            code = _CODES.get(array.dtype) if array.data.nbytes <= FEW_BYTES else None
            if code is not None:
                length = hypot(*array.data.cast(code).tolist())
                most = max(most, length if length < LONGEST.get(array.dtype, _LONGEST_OF_MOST) else inf)
                continue
            if array.dtype == "bfloat16" or (array.data.nbytes > SHORT_BYTES and sys.modules.get("torch") is not None):
                square = arrays.square(array)
            else:
                x = np.frombuffer(array.data, array.dtype)
                wide = x if x.itemsize > 2 else x.astype(np.float32)
                square = float(np.einsum("i,i->", wide, wide))  # a product by BLAS would warn of an overflow
            most = max(most, sqrt(square) if isfinite(square) else inf)
        payload.length = most
    return payload.length


def largest(payload: Payload) -> str:
    """Return, in words, why numbers of a payload can't be used: NaN or infinity among them, or how large they are."""
    most = 0.0
    for array in payload.arrays.values():
        if "float" in array.dtype and array.nbytes:
            x = arrays.to_tensor(array).abs().max()
            if not x.isfinite():
                return NOT_NUMBERS
            most = max(most, float(x))
    return f"numbers up to {most:.3g}, whose squares are infinite"


_CODES: Mapping[str, Literal["f", "d"]] = {"float32": "f", "float64": "d"}
"""The format code in a memoryview of each type of numbers."""


def extras_of(message: Message, like: Tensor) -> dict[str, Tensor]:
    """Return the additional vectors of a message, by name."""
    names = [name for name in message.payload.arrays if name.startswith(EXTRA)]
    return {name.removeprefix(EXTRA): vector(message, like, name) for name in names}


def extra(message: Message, like: Tensor, name: str) -> Tensor:
    """Return one additional vector of a message, checked against `like`'s shape and dtype. Raises MalformedMessage."""
    return vector(message, like, EXTRA + name)


def mass(message: Message, name: str, most: float = sys.float_info.max) -> float:
    """Return the push-sum weight `name` from the message's metadata.

    Raises MalformedMessage unless it is from 0 to `most`.
    """
    value = message.payload.meta.get(name)
    if not _is_number(value) or not 0 <= value <= most:
        raise absurd(message, f"{name} from 0 to {most:.6g}", f"{name} = {value!r}")
    return float(value)


def most_mass(view: View) -> float:
    """Return an upper bound on the push-sum weight of a fleet, and so on the weight in any message."""
    return float(MASS_A_NODE * view.num_nodes)


def step_size(message: Message, name: str) -> float:
    """Return a step size from the message's metadata, above 0 and at most 1. Raises MalformedMessage."""
    value = message.payload.meta.get(name)
    if not _is_number(value) or not 0 < value <= 1:
        raise absurd(message, f"a number {name!r} above 0, at most 1", value)
    return float(value)


def scalar(message: Message, like: Tensor, name: str) -> float:
    """Return the single number in the vector `name`, finite and not negative. Raises MalformedMessage."""
    value = float(vector(message, like[:1], name))
    if not 0 <= value < inf:
        raise absurd(message, f"a finite number {name!r} from 0", value)
    return value


def _is_number(value: object) -> TypeGuard[float | int]:
    return type(value) in (float, int)


def absurd(message: Message, expected: str, got: object) -> MalformedMessage:
    """Return an error for a message whose contents are `got` instead of what is `expected`."""
    where = f"message {message.src}->{message.dst} of round {message.round}"
    return MalformedMessage(f"{where}: expected {expected}, got {str(got)[:80]}", message)


def natural(message: Message, name: str) -> int:
    """Return the whole number `name`, at least 1, from the message's metadata. Raises MalformedMessage."""
    value = message.payload.meta.get(name)
    if type(value) is not int or value < 1:
        raise absurd(message, f"a whole number {name!r} from 1", value)
    return value


def some_nodes(message: Message, name: str) -> tuple[NodeId, ...]:
    """Return the node ids under `name` in the message's metadata; none if it is absent. Raises MalformedMessage."""
    value = message.payload.meta.get(name, ())
    if not isinstance(value, list | tuple) or not all(type(node) is int for node in value):
        raise absurd(message, f"nodes under {name!r}", value)
    return tuple(value)


def pack_encoded(encoded: EncodedVector, number: int = 1, of: str = CODE) -> Payload:
    """Pack a compressed vector, or code `number` of several whose sum is the vector; `of` names the vector.

    Its dimension is not sent, because the receiver knows it.
    """
    name = _pass_name(number, of)
    meta: dict[str, Scalar] = {name: dict(encoded.meta)} if encoded.meta else {}
    return Payload({f"{name}.{array_name}": array for array_name, array in encoded.arrays.items()}, meta)


def join_passes(first: Payload, last: Payload, passes: int) -> Payload:
    """Put the codes in `first` and the code in `last`, number `passes`, into one payload; they add up to the vector."""
    return Payload({**first.arrays, **last.arrays}, {**first.meta, **last.meta, PASSES: passes})


def unpack_encoded(
    payload: Payload, compressor: Compressor, like: Tensor, number: int | None = None, of: str = CODE
) -> Tensor:
    """Decode the sum of all codes in a payload, or only the code `number`, to a new vector like `like`.

    Raises MalformedMessage.
    """
    if number is None:
        passes, said = _passes(payload), unpack_encoded(payload, compressor, like, 1)
        for each in range(2, passes + 1):
            said = said + unpack_encoded(payload, compressor, like, each)
        return said
    return compressor.decompress(_encoded(payload, like, number, of)).to(like.device, like.dtype)


def add_encoded(payload: Payload, compressor: Compressor, base: Tensor) -> Tensor:
    """Return `base` plus the decoded codes of a payload, bit for bit as in two steps.

    Raises MalformedMessage if a code is invalid.
    """
    if _passes(payload) > 1:
        return base + unpack_encoded(payload, compressor, base)
    return add_to(compressor, base, _encoded(payload, base, 1, CODE))


def _passes(payload: Payload) -> int:
    passes = payload.meta.get(PASSES, 1)
    if type(passes) is not int or not 1 <= passes <= MOST_PASSES:
        raise MalformedMessage(f"expected 1 to {MOST_PASSES} {PASSES}, got {passes!r}")
    return passes


def _encoded(payload: Payload, like: Tensor, number: int, of: str) -> EncodedVector:
    name = _pass_name(number, of)
    meta = payload.meta.get(name, {})
    if not isinstance(meta, Mapping):
        raise MalformedMessage(f"expected a mapping under {name!r}, got {meta!r}")
    prefix = name + "."
    arrays = {key.removeprefix(prefix): array for key, array in payload.arrays.items() if key.startswith(prefix)}
    return EncodedVector(like.numel(), arrays, meta)


def _pass_name(number: int, of: str) -> str:
    return of if number == 1 else f"{of}{number}"


def encoded_vector(message: Message, compressor: Compressor, like: Tensor, of: str = CODE) -> Tensor:
    """Return the compressed vector of a message, decoded once for all receivers in this process.

    Do not write to it. Raises MalformedMessage.
    """
    decoded = _decoded(of)
    found: tuple[Compressor, Tensor] | None = _found(decoded, message.payload)
    if found is None or found[0] != compressor or found[1].dtype != like.dtype or found[1].shape != like.shape:
        found = _keep(decoded, message.payload, (compressor, _decode(message, compressor, like, of)))
    return found[1].to(like.device)


def followed(message: Message, compressor: Compressor, reference: Tensor) -> Tensor:
    """Return `reference` plus the message's decoded difference to it, computed once for all receivers in this process.

    Do not write to it. Raises MalformedMessage.
    """
    payload, decoded = message.payload, _decoded(FOLLOWED)
    moved: tuple[Compressor, Tensor] | None = _found(decoded, payload)
    alike = moved is not None and moved[1].dtype == reference.dtype and moved[1].shape == reference.shape
    if moved is None or not alike or moved[0] != compressor:
        with _blaming(message):
            moved = _keep(decoded, payload, (compressor, _usable(add_encoded(payload, compressor, reference))))
    return moved[1].to(reference.device)


def _decode(message: Message, compressor: Compressor, like: Tensor, of: str) -> Tensor:
    with _blaming(message):
        return _usable(unpack_encoded(message.payload, compressor, like, None if of == CODE else 1, of))


def _usable(decoded: Tensor) -> Tensor:
    """Return a decoded vector unchanged. Raises MalformedMessage if its squared length is not finite."""
    if not arrays.squared(decoded) < inf:
        raise MalformedMessage(f"expected a code of numbers with finite squares in {_name(decoded.dtype)}, got others")
    return decoded


@contextmanager
def _blaming(message: Message) -> Iterator[None]:
    """Add sender, receiver and round of the message to errors about its contents that occur inside the context."""
    try:
        yield
    except MalformedMessage as error:
        where = f"message {message.src}->{message.dst} of round {message.round}"
        raise MalformedMessage(f"{where}: {error}", message) from error


def to_all(view: View, payload: Payload) -> Outbox:
    """Return an outbox with the same payload for every out-neighbor."""
    return dict.fromkeys(view.out_neighbors, payload)
