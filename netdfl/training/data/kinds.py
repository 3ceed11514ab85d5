"""Kinds of inputs in a user's data (bytes, booleans, numbers), compared between examples and between parts."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from netdfl.core.errors import DatasetError
from netdfl.training.data.examples import Tree, leaves
from netdfl.training.data.tables import ReadExamples

_KINDS = {torch.uint8: "bytes (uint8)", torch.bool: "booleans"}
_BYTES, _NUMBERS = _KINDS[torch.uint8], "numbers"
_MOST_NAMED = 4


def kinds_of(inputs: Tree) -> tuple[str, ...]:
    """Return the kind of each tensor among a user's inputs."""
    return tuple(_KINDS.get(leaf.dtype, _NUMBERS) for leaf in leaves(inputs))


class InputKinds:
    """Kinds of the inputs of a dataset that is read one by one, compared at each reading."""

    def __init__(self) -> None:
        self.kinds: tuple[str, ...] = ()

    def check(self, inputs: Tree) -> None:
        """Raise TypeError if the inputs of an example and of the first example have different kinds."""
        found = kinds_of(inputs)
        self.kinds = self.kinds or found
        if (unlike := _first_unlike(self.kinds, found)) is not None:
            raise TypeError(f"its input is {unlike[1]}, and that of another example {unlike[0]}: give one type")


def said_of_bytes(parts: Sequence[ReadExamples]) -> list[str]:
    """Return a note on inputs that are bytes, if any are.

    Raises DatasetError if the inputs of one part (train, test, a client) are bytes or booleans, and the inputs of
    another part are not.
    """
    told = [part for part in parts if part.kinds]
    for part in told:
        if (unlike := _first_unlike(told[0].kinds, part.kinds)) is not None:
            by = "; bytes are divided by 255" if _BYTES in unlike else ""
            what = f"inputs of {part.name} are {unlike[1]}, and those of {told[0].name} {unlike[0]}"
            raise DatasetError(f"{what}: give all of them in one type{by}")
    names = [part.name for part in told if _BYTES in part.kinds]
    if not names:
        return []
    x, _ = told[0].examples.take(torch.arange(1))
    axes = [leaf.dim() - 1 for leaf, kind in zip(leaves(x), told[0].kinds, strict=True) if kind == _BYTES]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    note = f"inputs that are bytes (uint8) are divided by 255, as pixels are: {', '.join(names[:_MOST_NAMED])}{more}"
    other = "; give numbers that are no pixels, such as token ids for an embedding, as int64"
    return [note + (other if min(axes) < 2 else "")]


def _first_unlike(some: Sequence[str], others: Sequence[str]) -> tuple[str, str] | None:
    return next((pair for pair in zip(some, others, strict=False) if pair[0] != pair[1]), None)
