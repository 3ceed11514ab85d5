"""Old names of classes and functions, which can be imported for one more version, with a warning.

A module offers its old names by `__getattr__ = renamed(__name__, {"Old": "New"})`, hidden from type checkers.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """Return a module's `__getattr__` that maps old names to new ones, with a DeprecationWarning."""

    def find(name: str) -> object:
        new = names.get(name)
        if new is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is called {new} now; write that", DeprecationWarning, stacklevel=2)
        found: object = getattr(sys.modules[module], new)
        return found

    return find
