"""The parts that the catalog's functions combine, imported at first use, because some need torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netdfl.core.tables import lazy_module

if TYPE_CHECKING:
    from netdfl.algorithms import parts as parts
else:
    parts = lazy_module("netdfl.algorithms.plain_parts", "netdfl.algorithms.parts")
