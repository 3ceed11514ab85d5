"""What a later life of a node begins with: its state at its last round's end, kept in a checkpoint or in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from netdfl.algorithms.base import NodeState
from netdfl.core.errors import RunError
from netdfl.core.files import writing
from netdfl.core.types import NodeId
from netdfl.node.checkpoint import load_state, save_state
from netdfl.node.remembered import Remembered, durable, remember
from netdfl.node.runtime import Node
from netdfl.record.directory import CHECKPOINTS


class Kept(Protocol):
    """Where one node's state is kept over its lives. `saves`: it is, so answers wait until it is durable."""

    saves: bool

    async def save(self, node: Node, state: NodeState) -> None:
        """A round has ended with `state`: keep it where that is due. Raises RunError where the disk refuses it."""
        ...

    def load(self, fresh: NodeState) -> tuple[NodeState, Remembered | None]:
        """What was kept, which has the form of `fresh`; that, and None, where nothing was. Raises InputError."""
        ...


class InMemory:
    """A `Kept` of a node whose lives share a process."""

    def __init__(self, *, returns: bool) -> None:
        """Keep only what is needed: `returns` says that the schedule lets the node return with its state."""
        self.saves = returns
        self._kept: tuple[NodeState, Remembered] | None = None

    async def save(self, node: Node, state: NodeState) -> None:
        """See `Kept`."""
        if self.saves:
            memory = remember(node)
            self._kept = state, memory
            durable(node, memory)

    def load(self, fresh: NodeState) -> tuple[NodeState, Remembered | None]:
        """See `Kept`."""
        return (fresh, None) if self._kept is None else self._kept


class CheckpointFile:
    """A `Kept` on disk, which outlives the node's process."""

    def __init__(
        self,
        directory: Path,
        node: NodeId,
        *,
        returns: bool,
        every: int | None,
        ship: Callable[[Path], Awaitable[None]] | None = None,
    ) -> None:
        """Write below `directory`: each round where the node `returns`, else each `every` rounds and at the end.

        With `ship`, what is written each `every` rounds has to be where that takes it before it counts as durable.
        """
        self._ship = ship
        self.path = directory / CHECKPOINTS / f"{node:03d}.safetensors"
        self.saves = returns or every is not None
        self._returns, self._every = returns, every

    async def save(self, node: Node, state: NodeState) -> None:
        """See `Kept`: the next round's messages leave only when the checkpoint is durable."""
        if not self._is_due(state.round, node.num_rounds):
            return
        memory = remember(node)
        with writing(self.path, RunError):
            self.path.parent.mkdir(exist_ok=True)
            await asyncio.to_thread(save_state, (state, memory), self.path)
        if self._ship is not None and self._is_asked_for(state.round, node.num_rounds):
            await self._ship(self.path)
        durable(node, memory)

    def load(self, fresh: NodeState) -> tuple[NodeState, Remembered | None]:
        """See `Kept`."""
        if not self.path.exists():
            return fresh, None
        return load_state(self.path, (fresh, Remembered()))

    def _is_due(self, round: int, last: int) -> bool:
        return self._returns or self._is_asked_for(round, last)

    def _is_asked_for(self, round: int, last: int) -> bool:
        every = self._every
        return every is not None and (round % every == 0 or round == last)
