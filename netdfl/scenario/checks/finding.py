"""A mistake as a check finds it; the loader knows where in the file it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from netdfl.scenario.model.schema import Scenario


class Finding(NamedTuple):
    """What is wrong at `path`, what would do, and what was expected; `key` points at the key instead of its value.

    A `notice` is told, and nothing is refused for it.
    """

    path: tuple[str | int, ...]
    what: str
    remedy: str = ""
    expected: str = ""
    key: bool = False
    notice: bool = False


Check: TypeAlias = Callable[[Scenario], Iterator[Finding]]
