"""Keyed draws: a message's random number at one rule of one edge, and the key that orders messages due at one instant.

A draw is the 64-bit xxh3 hash of the packed (round, step, attempt, copy, kind). Its seed is `Streams.integer("link",
src, dst, rule)`, which already contains the fleet's seed, the edge and the rule. A draw costs about 0.1 us, keeps no
state, and is the same in every process and on every machine: whether a message is lost does not depend on other
messages or on their order.

Messages that are due at the same nanosecond go in the order of their order keys, hashes of edge and message. So their
order does not depend on the order in which they were submitted.

Relies on: the order of the members of `Kind`, which numbers kinds in the hash: new kinds are appended.

Why: A generator would give each message the next number, so one message more would change the losses and delays of all
later ones. A draw by name compares algorithms on the same channel, and lets a resumed run draw again.
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


def unit_uniform(seed: int, unit: Transit) -> float:
    """Draw a number from the open interval (0, 1), keyed by the message or packet `unit`."""
    kind = unit.kind
    code = 0 if kind is _DATA else _CODES[kind]
    digest = xxh3_64_intdigest(_pack_names(unit.round, unit.step, unit.attempt, unit.copy, code), seed)
    return ((digest >> 12) + 0.5) * _ULP


def count_uniform(seed: int, count: int) -> float:
    """Draw the number with index `count` of a random sequence, from the open interval (0, 1)."""
    return ((xxh3_64_intdigest(_pack_count(count), seed) >> 12) + 0.5) * _ULP


def edge_order_key(seed: int, src: NodeId, dst: NodeId) -> int:
    """Return the edge's part of order keys; `^` with the `message_order_key` of a message gives its whole order key."""
    return xxh3_64_intdigest(_pack_names(src, dst, 0, 0, 255), seed)


def message_order_key(seed: int, id: MessageId) -> int:
    """Return the part of an order key that the message gives, equal for all its receivers; `^` adds the edge's part."""
    kind, incarnation, (round, step), _, attempt = id
    return xxh3_64_intdigest(_pack_names(incarnation, round, step, attempt, _CODES[kind]), seed)
