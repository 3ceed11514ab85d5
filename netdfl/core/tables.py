"""Tables of the components that a scenario can name (link rules, say), and modules that are imported at first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import TypeVar

T = TypeVar("T")


def by_name(*parts: Callable[..., T]) -> Mapping[str, Callable[..., T]]:
    """Return a table of the functions `parts`, which build components of a scenario, each under its own name."""
    return MappingProxyType({part.__name__: part for part in parts})


class _LazyModule(ModuleType):
    def __init__(self, *names: str) -> None:
        super().__init__(names[-1])
        self._names = names
        self._found: dict[str, ModuleType] = {}

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        module = self._found.get(name)
        if module is None:
            module = self._found[name] = self._module_of(name)
        return getattr(module, name)

    def _module_of(self, name: str) -> ModuleType:
        for each in self._names[:-1]:
            module = importlib.import_module(each)
            if hasattr(module, name):
                return module
        return importlib.import_module(self._names[-1])


def lazy_module(*names: str) -> object:
    """Return an object that stands for several modules: each attribute comes from the first module that has it.

    Each module is imported only when an attribute is looked up in it.
    """
    return _LazyModule(*names)
