"""The storage of a node's state, in a checkpoint file or in memory, from which the node restarts after a crash."""

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
from netdfl.node.remembered import Remembered, durable, remember, with_shares
from netdfl.node.runtime import Node
from netdfl.record.directory import CHECKPOINTS


class StateKeeper(Protocol):
    """The storage of a node's state, from which the node can restart after a crash.

    `saves`: whether it stores states at all. A node then acknowledges a message only once the stored state includes it.
    """

    saves: bool

    async def save(self, node: Node, state: NodeState) -> None:
        """Store `state` at the end of a round, if this round's state is to be stored. Raises RunError if that fails."""
        ...

    def load(self, fresh: NodeState) -> tuple[NodeState, Remembered | None]:
        """Return the stored state, and the stored records of messages that the node must still know after a restart.

        `fresh` is a new state with tensors of the same shapes; the result is (`fresh`, None) if nothing was stored.

        Raises InputError if the checkpoint is damaged.
        """
        ...


class MemoryStateKeeper(StateKeeper):
    """The storage of a node's state in memory, for a node that restarts within the same process."""

    def __init__(self, *, returns: bool) -> None:
        """Store states only if the node `returns`, that is, the schedule lets the node restart with its state."""
        self.saves = returns
        self._kept: tuple[NodeState, Remembered] | None = None

    @override
    async def save(self, node: Node, state: NodeState) -> None:
        if self.saves:
            memory = with_shares(remember(node), node, state.round)
            self._kept = state, memory
            durable(node, memory)

    @override
    def load(self, fresh: NodeState) -> tuple[NodeState, Remembered | None]:
        return (fresh, None) if self._kept is None else self._kept


class CheckpointFile(StateKeeper):
    """The storage of a node's state in a checkpoint file, which outlives the node's process."""

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

        `returns`: the schedule lets the node restart with its state. `ship` uploads a file: if given, a checkpoint that
        `every` asks for counts as durable only once it is uploaded.
        """
        self._ship = ship
        self.path = directory / CHECKPOINTS / f"{node:03d}.safetensors"
        self.saves = returns or every is not None
        self._returns, self._every = returns, every

    async def save(self, node: Node, state: NodeState) -> None:
        """Write the state if this round's is to be stored. The node sends the next round's messages only afterwards."""
        if not self._is_due(state.round, node.num_rounds):
            return
        memory = with_shares(remember(node), node, state.round)
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
