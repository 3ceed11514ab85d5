"""Keyed draws: a unit's luck at one rule of one edge, and its place among units of one instant.

A draw is the 64-bit xxh3 hash of the packed (round, step, attempt, copy, kind), seeded with
`Streams.integer("link", src, dst, rule)`, which already holds the fleet's seed, the edge and the
rule. It costs about 0.1 us, keeps no state, and is the same in every process and on every machine:
whatever else is sent, and in whatever order, this unit meets the same fate.

Units that are due at the same nanosecond go in the order of their order keys, hashes of edge and message. So the order
does not depend on who was put in first.
"""

from __future__ import annotations

import struct

from xxhash import xxh3_64_intdigest

from netdfl.core.types import Kind, MessageId, NodeId
from netdfl.links.rules.base import Transit

_DATA = Kind.DATA
_CODES = {kind: code for code, kind in enumerate(Kind)}
_pack_names = struct.Struct("<4qB").pack
_pack_count = struct.Struct("<q").pack
_ULP = 2.0**-52
_MASK = (1 << 64) - 1
_COPY = 0x9E3779B97F4A7C15


def unit_uniform(seed: int, unit: Transit) -> float:
    """One draw from the open interval (0, 1), keyed by `unit`."""
    kind = unit.kind
    code = 0 if kind is _DATA else _CODES[kind]
    digest = xxh3_64_intdigest(_pack_names(unit.round, unit.step, unit.attempt, unit.copy, code), seed)
    return ((digest >> 12) + 0.5) * _ULP


def count_uniform(seed: int, count: int) -> float:
    """One draw from the open interval (0, 1): the `count`-th of a chain."""
    return ((xxh3_64_intdigest(_pack_count(count), seed) >> 12) + 0.5) * _ULP


def edge_order_key(seed: int, src: NodeId, dst: NodeId) -> int:
    """The edge's half of a message's order key; the message's half is `message_order_key`."""
    return xxh3_64_intdigest(_pack_names(src, dst, 0, 0, 255), seed)


def message_order_key(seed: int, id: MessageId) -> int:
    """The half of an order key that all receivers of a message share. Combined with the edge's half by `^`."""
    kind, incarnation, (round, step), _, attempt = id
    return xxh3_64_intdigest(_pack_names(incarnation, round, step, attempt, _CODES[kind]), seed)


def copy_order_key(order_key: int, copy: int) -> int:
    """The order key of a duplicate; of copy 0, the original's."""
    return (order_key ^ copy * _COPY) & _MASK
