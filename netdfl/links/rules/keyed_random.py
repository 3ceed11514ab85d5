"""Keyed draws: a unit's luck at one rule of one edge, from nothing but the seed and the unit's key.

A draw is the 64-bit xxh3 hash of the packed (round, step, attempt, copy, kind), seeded with
`Streams.integer("link", src, dst, rule)`, which already holds the fleet's seed, the edge and the
rule. It costs about 0.1 us, keeps no state, and is the same in every process and on every machine:
whatever else is sent, and in whatever order, this unit meets the same fate.
"""

from __future__ import annotations

import struct

from xxhash import xxh3_64_intdigest

from netdfl.core.types import Kind
from netdfl.links.rules.base import Transit

_DATA = Kind.DATA
_CODES = {kind: code for code, kind in enumerate(Kind)}
_pack_unit = struct.Struct("<4qB").pack
_pack_edge = struct.Struct("<6qB").pack
_pack_count = struct.Struct("<q").pack
_ULP = 2.0**-52


def unit_uniform(seed: int, unit: Transit) -> float:
    """One draw from the open interval (0, 1), keyed by `unit`."""
    kind = unit.kind
    code = 0 if kind is _DATA else _CODES[kind]
    digest = xxh3_64_intdigest(_pack_unit(unit.round, unit.step, unit.attempt, unit.copy, code), seed)
    return ((digest >> 12) + 0.5) * _ULP


def count_uniform(seed: int, count: int) -> float:
    """One draw from the open interval (0, 1): the `count`-th of a chain."""
    return ((xxh3_64_intdigest(_pack_count(count), seed) >> 12) + 0.5) * _ULP


def tie_break(seed: int, unit: Transit) -> int:
    """What orders units of equal time: a hash of (edge, kind, round, step, attempt, copy)."""
    code = _CODES[unit.kind]
    key = _pack_edge(unit.src, unit.dst, unit.round, unit.step, unit.attempt, unit.copy, code)
    return xxh3_64_intdigest(key, seed)
