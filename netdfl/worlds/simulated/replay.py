"""Local rounds on disk, so that a killed simulated run can be repeated without training again.

A checkpoint of a simulated fleet is the outcome of every local round so far, of each node, in the order in which it
trained. All else in a simulated run follows from the scenario and its seed. So a resumed run begins at time 0, plays
every message again, reads each local round from disk while there is one, and trains from there on. This is exact by
construction; it costs the network's part of the lost time, and not the training's. One file holds `checkpoint.every`
local rounds of a node; rounds that had not filled a file are trained again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from netdfl.algorithms.base import LocalRound, NodeState
from netdfl.core.errors import InputError, RunError
from netdfl.core.files import writing
from netdfl.core.types import NodeId
from netdfl.node.checkpoint import load_state, save_state
from netdfl.training.base import LocalData, StepRequests, Task, Update, alone
from netdfl.worlds.simulated.training import VirtualWorker

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


class Trained(NamedTuple):
    """The outcome of a local round, as stored: without the parts of a node's state that the round does not change.

    Attributes:
        start: the state of the algorithm's part that begins a round, `Algorithm.start`.
        local: the state of the local solver (such as momentum).
        x: the vector after the local steps, shape (d,).
        extras: named vectors to send along.
        loss: the mean training loss over the round's minibatches.
        last_loss: the task's `last_loss` after the round.
        statistics: the buffers that the node's model keeps for itself, by name.
    """

    start: Any
    local: Any
    x: Tensor
    extras: dict[str, Tensor]
    loss: float
    last_loss: float
    statistics: Mapping[str, Tensor] | None = None


class RoundMemory(Protocol):
    """A store of the outcomes of local rounds, which computes an outcome that it does not have."""

    def solve(self, round: LocalRound, task: Task) -> StepRequests[tuple[NodeState, Update]]:
        """Return the outcome of a local round on `task`: a stored one, or the one that `round` computes now.

        The result is a generator: it yields the training steps that its caller computes, and returns the outcome.
        """
        ...


class Memory:
    """The local rounds of one node on disk: reads those that are there, and writes later ones, `every` to a file."""

    def __init__(self, folder: Path, node: NodeId, every: int) -> None:
        """Store the outcomes of local rounds of `node` below `folder`, in files of `every` rounds each."""
        self.folder, self.node, self.every = folder, node, every
        self.num_read = 0
        self._number = 0
        self._read: list[Trained] = []
        self._fresh: list[Trained] = []

    def solve(self, round: LocalRound, task: Task) -> StepRequests[tuple[NodeState, Update]]:
        """Return the outcome of the node's next local round: from disk, or computed by `round` and stored.

        The result is a generator: it yields the training steps that its caller computes, and returns the outcome.
        Raises RunError for a full disk, or InputError for files that can't be used.
        """
        number, self._number = self._number, self._number + 1
        if number % self.every == 0:
            self._read = self._load(number // self.every, round.state)
        if self._read:
            self.num_read += 1
            return recalled(self._read[number % self.every], round.state, task)
        after, update = yield from round.solve()
        if self.num_read and round.state.statistics is None and after.statistics is not None:
            raise InputError(
                f"{self.folder} is of a netdfl that left out what models keep in their buffers; "
                "delete it, and its local rounds are trained again"
            )
        self._fresh.append(trained_of(after, update, task))
        if len(self._fresh) == self.every:
            self._save(number // self.every)
        return after, update

    def _path(self, number: int) -> Path:
        return self.folder / f"{self.node:03d}-{number:06d}.safetensors"

    def _load(self, number: int, state: NodeState) -> list[Trained]:
        path = self._path(number)
        if not path.exists():
            return []
        like = Trained(state.start, state.local, state.x, {}, 0.0, 0.0)
        return load_state(path, [like] * self.every, remedy="delete it, and its local rounds are trained again")

    def _save(self, number: int) -> None:
        path = self._path(number)
        with writing(path, RunError):
            self.folder.mkdir(exist_ok=True)
            save_state(self._fresh, path)
        self._fresh = []


def trained_of(after: NodeState, update: Update, task: Task) -> Trained:
    """Return the parts of a local round's outcome (the state `after` it, and its update) that must be stored."""
    extras = dict(update.extras)
    return Trained(after.start, after.local, update.x, extras, update.loss, task.last_loss, after.statistics)


def recalled(trained: Trained, state: NodeState, task: Task) -> tuple[NodeState, Update]:
    """Return the outcome of a local round that began from `state`, as stored in `trained`; set the task's last loss."""
    task.last_loss = trained.last_loss  # type: ignore[misc]
    after = state._replace(start=trained.start, local=trained.local, statistics=trained.statistics)
    return after, Update(state.x, trained.x, trained.extras, trained.loss)


@dataclass(frozen=True)
class StoredLocalRound:
    """A `LocalRound` that reads its outcome from a memory, or computes and stores it."""

    memory: RoundMemory
    round: LocalRound
    task: Task

    @property
    def data(self) -> LocalData:
        """The data that the round trains on."""
        return self.round.data

    def __call__(self) -> tuple[NodeState, Update]:
        """Return the outcome of the local round: stored before, or computed now."""
        with self.round.drawing():
            return alone(self.solve())

    def solve(self) -> StepRequests[tuple[NodeState, Update]]:
        """Yield the training steps to compute, none if the memory has the outcome; return the round's outcome."""
        return self.memory.solve(self.round, self.task)


@dataclass(eq=False, kw_only=True)
class RememberingWorker(VirtualWorker):
    """A worker in virtual time that takes outcomes of local rounds from a memory, or computes and stores them.

    `task` returns the task that the node trains on.
    """

    memory: RoundMemory
    task: Callable[[], Task]

    async def run(self, what: str, function: Callable[..., T], *args: Any) -> T:
        """Run `function(*args)`; if it is a local round, take its outcome from the memory or store it there.

        `what` names the kind of work; local rounds are `train`.
        """
        if isinstance(function, LocalRound):
            stored = StoredLocalRound(self.memory, function, self.task())
            return await super().run(what, stored)  # type: ignore[arg-type]
        return await super().run(what, function, *args)
