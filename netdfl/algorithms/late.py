"""The parts that the catalog's functions put together, imported with torch when the first of them is asked for."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from netdfl.algorithms import parts as parts
else:

    class _Parts(ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return getattr(importlib.import_module(self.__name__), name)

    parts = _Parts("netdfl.algorithms.parts")
