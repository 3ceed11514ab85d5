"""The state from which a later life of a node starts, stored in a checkpoint or in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from typing_extensions import override

from netdfl.algorithms.base import NodeState
from netdfl.core.errors import RunError
from netdfl.core.files import writing
from netdfl.core.types import NodeId
from netdfl.node.checkpoint import load_state, save_state
from netdfl.node.remembered import Remembered, durable, remember
from netdfl.node.runtime import Node
from netdfl.record.directory import CHECKPOINTS


class StateKeeper(Protocol):
    """The storage of a node's state between its lives.

    `saves`: whether it stores states, so that a node acknowledges a message only once its state with it is durable.
    """

    saves: bool

    async def save(self, node: Node, state: NodeState) -> None:
        """Store `state` at the end of a round, if it is due. Raises RunError if it can't be written."""
        ...

    def load(self, fresh: NodeState) -> tuple[NodeState, Remembered | None]:
        """Return the stored state, in the form of `fresh`, and the messages that the node must remember over a restart.

        (`fresh`, None) if nothing was stored.

        Raises InputError if the checkpoint is damaged.
        """
        ...


class MemoryStateKeeper(StateKeeper):
    """The storage in memory, for a node whose lives share a process."""

    def __init__(self, *, returns: bool) -> None:
        """Store states only if the node `returns`: the schedule lets it restart with its state."""
        self.saves = returns
        self._kept: tuple[NodeState, Remembered] | None = None

    @override
    async def save(self, node: Node, state: NodeState) -> None:
        if self.saves:
            memory = remember(node)
            self._kept = state, memory
            durable(node, memory)

    @override
    def load(self, fresh: NodeState) -> tuple[NodeState, Remembered | None]:
        return (fresh, None) if self._kept is None else self._kept


class CheckpointFile(StateKeeper):
    """The storage in a file, which outlives the node's process."""

    def __init__(
        self,
        directory: Path,
        node: NodeId,
        *,
        returns: bool,
        every: int | None,
        ship: Callable[[Path], Awaitable[None]] | None = None,
    ) -> None:
        """Write below `directory`: each round if the node `returns`, else every `every` rounds and at the end.

        With `ship`, the checkpoint of each `every` rounds counts as durable only once `ship` has delivered it.
        """
        self._ship = ship
        self.path = directory / CHECKPOINTS / f"{node:03d}.safetensors"
        self.saves = returns or every is not None
        self._returns, self._every = returns, every

    async def save(self, node: Node, state: NodeState) -> None:
        """Write the state if it is due; the messages of the next round are sent only after it is durable."""
        if not self._is_due(state.round, node.num_rounds):
            return
        memory = remember(node)
        with writing(self.path, RunError):
            self.path.parent.mkdir(exist_ok=True)
            await asyncio.to_thread(save_state, (state, memory), self.path)
        if self._ship is not None and self._is_asked_for(state.round, node.num_rounds):
            await self._ship(self.path)
        durable(node, memory)

    @override
    def load(self, fresh: NodeState) -> tuple[NodeState, Remembered | None]:
        if not self.path.exists():
            return fresh, None
        return load_state(self.path, (fresh, Remembered()))

    def _is_due(self, round: int, last: int) -> bool:
        return self._returns or self._is_asked_for(round, last)

    def _is_asked_for(self, round: int, last: int) -> bool:
        every = self._every
        return every is not None and (round % every == 0 or round == last)
