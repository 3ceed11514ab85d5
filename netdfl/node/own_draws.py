"""What a user's own solver draws after mixing, and a mixing, compressor or wait policy of theirs at any time.

It comes from the stream of (node, round), in every world: the streams that all code of a process shares are one node's
alone in one world, and everybody's in another.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, is_dataclass
from functools import partial
from typing import TypeVar

from netdfl.algorithms.base import Algorithm
from netdfl.core.rng import Key, Streams
from netdfl.core.types import NodeId

T = TypeVar("T")
AS_THEY_ARE: AbstractContextManager[None] = nullcontext()
"""Within, streams are left as they are: nothing of a user's own draws from them."""
_NOBODYS_OWN = sys.stdlib_module_names | {"netdfl", "numpy", "torch"}


def has_own_parts(algorithm: Algorithm) -> bool:
    """Whether a user's own code trains, mixes, compresses, waits, or refines a server's model."""
    return any(map(_holds_own, (algorithm.local, algorithm.mixing, algorithm.wait, algorithm.refine)))


def _holds_own(part: object) -> bool:
    if type(part).__module__.partition(".")[0] not in _NOBODYS_OWN:
        return True
    return any(map(_holds_own, _inside(part)))


def _inside(part: object) -> Iterator[object]:
    if is_dataclass(part):
        yield from (getattr(part, field.name) for field in fields(part))
    elif type(part).__module__.partition(".")[0] == "netdfl":
        yield from getattr(part, "__dict__", {}).values()


class OwnDraws:
    """Gives the streams in which a node's own parts draw."""

    @classmethod
    def of(cls, node: NodeId, algorithm: Algorithm, streams: Streams | None) -> OwnDraws | None:
        """Take them from `streams`; None where there are no streams, or all parts are netdfl's, which draw by name."""
        return cls(node, streams) if streams is not None and has_own_parts(algorithm) else None

    def __init__(self, node: NodeId, streams: Streams) -> None:
        """Take them from `streams`."""
        self.node, self._streams = node, streams

    def within(self, what: str, round: int, *key: Key) -> AbstractContextManager[object]:
        """Within, what is drawn is of this node, `round`, and what is done: the same whenever that is done anew."""
        import torch  # which own parts have loaded already: they compute with tensors

        from netdfl.training.drawing import seeded

        return seeded(self._streams.integer("own parts", self.node, round, what, *key), torch.device("cpu"))

    def drawing(self, function: Callable[..., T], round: int, *key: Key) -> Callable[..., T]:
        """`function`, which draws so whenever it is called.

        Its calls are told apart by `key`, or else by the function's name and the numbers among its arguments.
        """
        return partial(self._call, function, round, key)

    def _call(self, function: Callable[..., T], round: int, key: tuple[Key, ...], *args: object) -> T:
        what, *more = key or (function.__name__, *(arg for arg in args if isinstance(arg, int)))
        with self.within(str(what), round, *more):
            return function(*args)
