"""The parts that the catalog's functions put together, imported with torch when the first of them is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netdfl.core.lazy import lazy_module

if TYPE_CHECKING:
    from netdfl.algorithms import parts as parts
else:
    parts = lazy_module("netdfl.algorithms.parts")
