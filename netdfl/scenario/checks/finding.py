"""The form in which a check reports a mistake; the loader adds its place in the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from netdfl.scenario.model.schema import Scenario


class CheckFinding(NamedTuple):
    """A mistake in a scenario: its description `what`, its place `path`, its remedy, and the expected value.

    With `key` the key is at fault instead of its value. A `notice` is reported and refuses nothing.
    """

    path: tuple[str | int, ...]
    what: str
    remedy: str = ""
    expected: str = ""
    key: bool = False
    notice: bool = False


Check: TypeAlias = Callable[[Scenario], Iterator[CheckFinding]]
