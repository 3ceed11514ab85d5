"""Import a module at its first use, where importing it at once would cost every command seconds."""

from __future__ import annotations

import importlib
from types import ModuleType


class _Lazy(ModuleType):
    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


def lazy_module(name: str) -> object:
    """Stand in for the module `name` until an attribute of it is asked for."""
    return _Lazy(name)
