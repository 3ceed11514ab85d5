"""Detection of examples in memory with NaN or infinity, when data are loaded instead of during training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import isfinite

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from netdfl.core.errors import DatasetError
from netdfl.training.data.examples import Examples, Samples, leaves


@dataclass(frozen=True)
class NonFiniteExample:
    """An example with NaN or infinity: its name, such as `train[17]`, what it `holds`, and the example itself."""

    name: str
    holds: str
    example: Samples


def refuse_spoiled(spoiled: Iterable[NonFiniteExample], loss_of: Callable[[Samples], float]) -> None:
    """Raise DatasetError that names the examples with NaN or infinity, unless the model's loss on them is finite.

    `loss_of` returns this loss; some models are made for NaN.
    """
    found = [f"{bad.name} has {bad.holds}" for bad in spoiled if not _is_fine(bad.example, loss_of)]
    if found:
        raise DatasetError(f"{', '.join(found)}: fill it, or leave such examples out")


def _is_fine(example: Samples, loss_of: Callable[[Samples], float]) -> bool:
    try:
        return isfinite(loss_of(example))
    except Exception:  # the user's model: whatever it says of NaN, the place is what helps
        return False


def spoiled_in(examples: Examples, what: str, rows: NDArray[np.int64] | None = None) -> Iterator[NonFiniteExample]:
    """Yield the first example with NaN and the first with infinity, in inputs and in targets, if they are in memory.

    `what` names the data set. If some examples are left out, `rows` has the indices of the others in the whole set.
    """
    if not isinstance(examples, Samples):
        return
    for side, tree in (("input", examples.x), ("target", examples.y)):
        suspects = [leaf for leaf in leaves(tree) if _is_suspect(leaf)]
        for holds, test in (("NaN", torch.isnan), ("infinity", torch.isinf)):
            places = [place for leaf in suspects if (place := _first(test(leaf))) is not None]
            if places:
                place = min(places)
                name = f"{what}[{place if rows is None else rows[place]}]"
                yield NonFiniteExample(name, f"{holds} in its {side}", examples.only(np.array([place])))


def _is_suspect(leaf: Tensor) -> bool:
    """Return whether a tensor may hold NaN or infinity, because the sum of its numbers is not finite."""
    return leaf.is_floating_point() and not bool(torch.isfinite(leaf.sum(dtype=torch.float64)))


def _first(holds: Tensor) -> int | None:
    """Return the first index along the first axis at which `holds` is true anywhere; None if there is none."""
    where = holds.flatten(1).any(1) if holds.dim() > 1 else holds
    return int(where.int().argmax()) if bool(where.any()) else None
