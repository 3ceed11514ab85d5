"""A store of local rounds that several reruns share: a round with the same inputs is trained only once.

The key is a hash of the inputs: the bytes of the node's whole state, and its view of the graph in the round. The number
of the round would not do, for in another rerun the node may have received other messages before it.

Relies on: a local round depends on nothing but its node, its number, the state and the view, as netdfl's own parts do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from xxhash import xxh3_128

from netdfl.algorithms.base import LocalRound, NodeState
from netdfl.training.base import StepRequests, Task, Update
from netdfl.worlds.simulated.replay import Trained, recalled, trained_of

STORE_BYTES = 512 << 20
"""The default limit of a store, in bytes of the vectors that it holds in memory."""


class LocalRoundStore:
    """A store of the outcomes of local rounds, in the memory of one process.

    Once the store is full, further rounds are trained each time.

    Attributes:
        recalled: the number of rounds whose outcome came from the store.
        trained: the number of rounds that were trained.
    """

    def __init__(self, most_bytes: int = STORE_BYTES) -> None:
        """Begin empty; hold vectors of at most `most_bytes` bytes in total."""
        self.most_bytes, self.nbytes = most_bytes, 0
        self.recalled = self.trained = 0
        self._kept: dict[str, Trained] = {}

    def solve(self, round: LocalRound, task: Task) -> StepRequests[tuple[NodeState, Update]]:
        """Return the outcome of a local round: from the store if that has it, else by training."""
        key = key_of(round, task)
        if key is not None and key in self._kept:
            self.recalled += 1
            return recalled(deepcopy(self._kept[key]), round.state, task)
        after, update = yield from round.solve()
        self.trained += 1
        if key is not None:
            self._keep(key, trained_of(after, update, task))
        return after, update

    def _keep(self, key: str, trained: Trained) -> None:
        nbytes = sum(part.nbytes for part in _parts(trained) if _is_array(part))
        if self.nbytes + nbytes <= self.most_bytes:
            self.nbytes += nbytes
            self._kept[key] = deepcopy(trained)


def key_of(round: LocalRound, task: Task) -> str | None:
    """Return a hash of all inputs of a local round; None if it has a user's own part, which may depend on more."""
    own = (task, round.alg.local, round.alg.start)
    if any(type(part).__module__.partition(".")[0] != "netdfl" for part in own):
        return None
    digest = xxh3_128()
    for part in _parts((round.state, round.view)):
        if _is_array(part):
            digest.update(f"{part.dtype} {tuple(part.shape)} ".encode())
            digest.update(part.detach().numpy().tobytes())
        elif part is None or isinstance(part, bool | int | float | str):
            digest.update(f"{part!r} ".encode())
        else:
            return None
    return digest.hexdigest()


def _is_array(part: object) -> bool:
    return hasattr(part, "dtype")


def _parts(value: Any) -> Iterator[Any]:
    """Yield the leaves of a nested state; a text with its size precedes the leaves of each mapping or sequence."""
    if isinstance(value, Mapping):
        yield f"{len(value)} by name"
        for key, each in value.items():
            yield key
            yield from _parts(each)
    elif isinstance(value, tuple | list):
        yield f"{type(value).__name__} of {len(value)}"
        for each in value:
            yield from _parts(each)
    else:
        yield value
