"""Quantities as people write them: `20ms`, `10Mbit`, `256KiB`, `5%`. Bits and bytes are distinct."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, TypeAlias

from annotated_types import Interval

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

_NUMBER = re.compile(r"^\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-zµ%/]*)\s*$")

_TIME_NS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PREFIX = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_RATE_BPS = {f"{p}{unit}": m for p, m in (_PREFIX | _BINARY).items() for unit in ("bit", "bps", "bit/s")} | {
    f"{p}B/s": 8 * m for p, m in (_PREFIX | _BINARY).items()
}
_SIZE_BYTES = {f"{p}B": m for p, m in (_PREFIX | _BINARY).items()}


_MOST = {
    "time": (3_155_760_000 * 10**9, "876600h (100 years)"),
    "rate": (10**18, "1000000Tbit"),
    "size": (2**60, "1048576TiB"),
}


def _quantity(text: object, table: dict[str, int], what: str, examples: str) -> Decimal:
    match = _NUMBER.match(text) if isinstance(text, str) else None
    if match is None or match[2] not in table:
        raise ValueError(f"{text!r} is not a {what}; write a number with a unit, like {examples}")
    number, unit = Decimal(match[1]), table[match[2]]
    if number < 0:
        raise ValueError(f"{text!r} is negative; a {what} is 0 or more, like {examples}")
    most, written = _MOST[what]
    if number > Decimal(most) / unit:
        raise ValueError(f"{text!r} is more than a {what} may be; write at most {written}")
    return number * unit


def parse_time_ns(text: object) -> int:
    """Parse a time such as `20ms`, `1.5s`, `2min` or `2m` to nanoseconds. Raises ValueError that names the units."""
    return int(_quantity(text, _TIME_NS, "time", "20ms, 1.5s or 2min").to_integral_value())


def parse_rate_bps(text: object) -> float:
    """Parse a rate such as `10Mbit`, `1Gbps`, `2MB/s` to bits per second. Raises ValueError that names the units."""
    return float(_quantity(text, _RATE_BPS, "rate", "10Mbit, 1Gbit or 2MB/s"))


def parse_size_bytes(text: object) -> int:
    """Parse a size such as `1500B`, `256KiB`, `1MB` to bytes. Raises ValueError that names the units."""
    return int(_quantity(text, _SIZE_BYTES, "size", "1500B, 256KiB or 1MB").to_integral_value())


def parse_probability(value: object) -> float:
    """Parse a probability from 0 to 1, or a percentage such as `5%`. Raises ValueError."""
    number: float | None = None
    if isinstance(value, str):
        match = _NUMBER.match(value)
        if match is not None and match[2] in ("", "%"):
            number = float(match[1]) / (100 if match[2] else 1)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    if number is None or not 0 <= number <= 1:
        raise ValueError(f"{value!r} is not a probability; write 0 to 1, or a percentage like 5%")
    return number


@dataclass(frozen=True, slots=True)
class Quantity:
    """A type annotation for a parameter that is written with a unit; the scenario reads it with `parse`."""

    name: str
    parse: Callable[[object], object]

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Build a pydantic schema that converts text by `parse`; a number counts as a value in base units."""
        from pydantic_core.core_schema import no_info_before_validator_function

        return no_info_before_validator_function(
            lambda value: self.parse(value) if isinstance(value, str) else value, handler(source)
        )


Bound: TypeAlias = Interval
"""A mark in a type annotation for the range of a parameter, open (`gt`, `lt`) or closed (`ge`, `le`)."""


# The types of parts' parameters. A part is a function with typed keyword parameters, listed by name
# in a table beside it; the scenario's schema is made from the table.
TimeNs: TypeAlias = Annotated[int, Quantity("time", parse_time_ns)]
RateBps: TypeAlias = Annotated[float, Quantity("rate", parse_rate_bps)]
SizeBytes: TypeAlias = Annotated[int, Quantity("size", parse_size_bytes)]
Probability: TypeAlias = Annotated[float, Quantity("probability", parse_probability)]
PositiveInt: TypeAlias = Annotated[int, Bound(ge=1)]
NonNegativeInt: TypeAlias = Annotated[int, Bound(ge=0)]
# A float32 ends at 3.4e38, and what is beyond it fails deep inside of torch, in words that name no parameter.
PositiveFloat: TypeAlias = Annotated[float, Bound(gt=0, le=1e30)]
NonNegativeFloat: TypeAlias = Annotated[float, Bound(ge=0, le=1e30)]


def format_time(ns: int) -> str:
    """Return the shortest exact text for a time in nanoseconds: `20ms`, `1.5s`."""
    for unit in ("s", "ms", "us"):
        scaled = Decimal(ns) / _TIME_NS[unit]
        if ns == 0 or abs(scaled) >= 1:
            return f"{scaled.normalize():f}{unit}"
    return f"{ns}ns"


def format_bytes(nbytes: float) -> str:
    """Format a number of bytes for people, with three digits: `1.23 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(nbytes) < 1000:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.3g} TB"
