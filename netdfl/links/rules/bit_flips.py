"""Damage that a link does and that nothing detects: one flipped bit in a message's arrays."""

from __future__ import annotations

from xxhash import xxh3_64_intdigest

from netdfl.core.types import Array, Message, Payload


def with_bit_flipped(message: Message, seed: int) -> Message:
    """`message` with one bit of its arrays flipped, which one depends on `seed` and the message's key."""
    arrays = dict(message.payload.arrays)
    total = sum(array.nbytes for array in arrays.values())
    if total == 0:
        return message
    key = repr((message.src, message.dst, message.kind.value, message.round, message.step, message.attempt))
    at, bit = divmod(xxh3_64_intdigest(key.encode(), seed) % (8 * total), 8)
    for name, array in arrays.items():
        if at < array.nbytes:
            data = bytearray(array.data)
            data[at] ^= 1 << bit
            arrays[name] = Array(array.dtype, array.shape, memoryview(bytes(data)))
            break
        at -= array.nbytes
    return message._replace(payload=Payload(arrays, message.payload.meta))
