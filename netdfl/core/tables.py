"""Tables of the parts that a scenario can name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

T = TypeVar("T")


def by_name(*parts: Callable[..., T]) -> Mapping[str, Callable[..., T]]:
    """Functions that make parts, each under its own name."""
    return MappingProxyType({part.__name__: part for part in parts})
