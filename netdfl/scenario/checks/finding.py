"""The form in which a check reports a mistake in a scenario; the loader adds the place in the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from netdfl.scenario.model.schema import Scenario


class CheckFinding(NamedTuple):
    """A mistake in a scenario, as a check reports it.

    Attributes:
        path: the keys that lead to the wrong value.
        what: the description of the mistake.
        remedy: the change that corrects it.
        expected: the values that would be right.
        key: whether the key is at fault instead of its value.
        notice: whether the user only gets a notice, and the scenario is accepted.
    """

    path: tuple[str | int, ...]
    what: str
    remedy: str = ""
    expected: str = ""
    key: bool = False
    notice: bool = False


Check: TypeAlias = Callable[[Scenario], Iterator[CheckFinding]]
