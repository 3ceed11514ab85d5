"""Random numbers of a user's own parts: a solver, mixing, compressor or wait policy from outside netdfl.

Such parts draw from the global generators of Python, NumPy and torch. In some worlds a process holds one node, in
others a whole fleet, so unseeded draws would differ from world to world. While such a part runs, these generators are
seeded from the stream of its node and round. netdfl's parts need none of this: they draw from named streams.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import fields, is_dataclass
from functools import partial
from typing import TypeVar

from netdfl.algorithms.base import Algorithm
from netdfl.core.rng import Key, Streams
from netdfl.core.types import NodeId

T = TypeVar("T")
_NOBODYS_OWN = sys.stdlib_module_names | {"netdfl", "numpy", "torch"}


def has_own_parts(algorithm: Algorithm) -> bool:
    """Return whether any part of the algorithm is a user's own code."""
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
    """The seeds of the random generators that a user's own parts use at one node."""

    @classmethod
    def of(cls, node: NodeId, algorithm: Algorithm, streams: Streams | None) -> OwnDraws | None:
        """Return the seeds, made from `streams`, for a user's own parts of `algorithm` at `node`.

        Return None without streams, or if all parts of the algorithm are netdfl's, which draw from named streams
        themselves.
        """
        return cls(node, streams) if streams is not None and has_own_parts(algorithm) else None

    def __init__(self, node: NodeId, streams: Streams) -> None:
        """Derive the seeds for `node` from the random streams of the run, `streams`."""
        self.node, self._streams = node, streams

    def within(self, what: str, round: int, *key: Key) -> AbstractContextManager[object]:
        """Return a context in which the global random generators have a seed made from the node and the arguments.

        `what` names the purpose of the draws; `key` tells apart draws for one purpose in one `round`.
        """
        import torch  # which own parts have loaded already: they compute with tensors

        from netdfl.training.drawing import seeded

        return seeded(self._streams.integer("own parts", self.node, round, what, *key), torch.device("cpu"))

    def drawing(self, function: Callable[..., T], round: int, *key: Key) -> Callable[..., T]:
        """Return `function`, wrapped so that the global random generators have a fixed seed during each call.

        The seed depends on node, `round` and `key`, or without a key on the function's name and its integer arguments.
        """
        return partial(self._call, function, round, key)

    def _call(self, function: Callable[..., T], round: int, key: tuple[Key, ...], *args: object) -> T:
        what, *more = key or (function.__name__, *(arg for arg in args if isinstance(arg, int)))
        with self.within(str(what), round, *more):
            return function(*args)
