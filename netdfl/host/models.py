"""The hand-over of nodes' models to the evaluator: a model vector and its push-sum weight, in memory or in a file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from safetensors import SafetensorError
from typing_extensions import override

from netdfl.compression.tensor_files import as_bytes, read
from netdfl.core.control import ModelSaved, Report
from netdfl.core.errors import InputError, RunError
from netdfl.core.files import write_whole, writing
from netdfl.core.types import NodeId
from netdfl.training.base import NOTHING, Kept

if TYPE_CHECKING:
    from torch import Tensor


_KEPT = "kept:"


class ModelSnapshot(NamedTuple):
    """A node's model vector (push-sum: the numerator), its push-sum weight, and module buffers that stay local."""

    x: Tensor
    weight: float
    kept: Kept = NOTHING


class Models(Protocol):
    """The destination of a node's models: those to be evaluated, and the last one if the scenario saves it."""

    async def judge(self, round: int, x: Tensor, weight: float, kept: Kept = NOTHING) -> None:
        """Hand over a node's model at the end of `round` to the evaluator, which evaluates it during the next round.

        `kept` are module buffers that the node does not share.
        """
        ...

    async def keep(self, x: Tensor, weight: float, kept: Kept = NOTHING) -> None:
        """Save the last model in the run directory. Raises RunError if it can't be written."""
        ...

    async def delivered(self) -> None:
        """Return once the evaluator can find every model that was handed over."""
        ...


class ModelsInMemory(Models):
    """Models of nodes in the evaluator's own process: `found` holds them, by round and node."""

    def __init__(
        self,
        directory: Path,
        node: NodeId,
        found: dict[tuple[int, NodeId], ModelSnapshot],
        report: Callable[[Report], None],
    ) -> None:
        """Put the models of `node` into `found`; save the last round's model below `directory`.

        `report` sends the supervisor a report that a model is there.
        """
        self._directory, self._node, self._found, self._report = directory, node, found, report

    @override
    async def judge(self, round: int, x: Tensor, weight: float, kept: Kept = NOTHING) -> None:
        apart = {name: value.cpu() for name, value in kept.items()} if kept else NOTHING
        self._found[round, self._node] = ModelSnapshot(x.detach().cpu(), weight, apart)
        self._report(ModelSaved(round))

    @override
    async def keep(self, x: Tensor, weight: float, kept: Kept = NOTHING) -> None:
        keep_model(self._directory, self._node, ModelSnapshot(x, weight, kept))

    async def delivered(self) -> None:
        """Return at once: models in memory are delivered immediately."""


class ModelFiles(Models):
    """Models that are written to files, which the evaluator reads or the node uploads.

    A model is written later, without a copy: nobody may change its vector in place meanwhile.
    """

    def __init__(
        self,
        directory: Path,
        node: NodeId,
        report: Callable[[Report], None],
        ship: Callable[[Path], Awaitable[None]] | None = None,
    ) -> None:
        """Write the models of `node` below `directory`, while the method `write` runs.

        `report` sends the supervisor a report of each file; `ship`, if given, uploads the file to the supervisor.
        """
        self._directory, self._node, self._report, self._ship = directory, node, report, ship
        self._due: asyncio.Queue[tuple[int, ModelSnapshot]] = asyncio.Queue(maxsize=2)

    async def judge(self, round: int, x: Tensor, weight: float, kept: Kept = NOTHING) -> None:
        """Queue the model of `round`; wait while two others are still queued."""
        await self._due.put((round, ModelSnapshot(x, weight, kept)))

    @override
    async def keep(self, x: Tensor, weight: float, kept: Kept = NOTHING) -> None:
        await asyncio.to_thread(keep_model, self._directory, self._node, ModelSnapshot(x, weight, kept))
        if self._ship is not None:
            await self._ship(model_path(self._directory, self._node))

    @override
    async def delivered(self) -> None:
        await self._due.join()

    async def write(self) -> None:
        """Write and report queued models until cancelled. Raises RunError if a file can't be written."""
        while True:
            round, snapshot = await self._due.get()
            path = snapshot_path(self._directory, round, self._node)
            with writing(path, RunError):
                await asyncio.to_thread(write_snapshot, path, *snapshot)
            if self._ship is not None:
                await self._ship(path)
                path.unlink(missing_ok=True)
            self._report(ModelSaved(round))
            self._due.task_done()


def snapshot_path(directory: Path, round: int, node: NodeId) -> Path:
    """Return the path of the file with a node's model of a round, which is deleted after evaluation."""
    return directory / "snapshots" / f"{round:06d}-{node:03d}.safetensors"


def model_path(directory: Path, node: NodeId) -> Path:
    """Return the path of a node's last model."""
    return directory / "models" / f"{node:03d}.safetensors"


def write_snapshot(path: Path, x: Tensor, weight: float, kept: Kept = NOTHING) -> None:
    """Write a node's model vector, push-sum weight and own buffers to a file, which appears complete or not at all."""
    tensors = {"x": x} | {_KEPT + name: value for name, value in kept.items()}
    write_whole(path, as_bytes(tensors, {"weight": repr(weight)}))


def read_snapshot(path: Path, dim: int | None = None, *, torch: bool = True) -> ModelSnapshot:
    """Read a snapshot with `dim` parameters that `write_snapshot` wrote; without `torch`, its vector is a `Vector`.

    Raises InputError if the file is anything else.
    """
    try:
        tensors, metadata = read(path, torch=torch)
        kept = {name.removeprefix(_KEPT): value for name, value in tensors.items() if name.startswith(_KEPT)}
        found = ModelSnapshot(tensors["x"], float(metadata["weight"]), kept)
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise InputError(f"{path} is no model that a node wrote: {error!r}; delete it to go on without it") from error
    if found.x.ndim != 1 or not found.x.is_floating_point():
        what = f"shape {tuple(found.x.shape)}, {found.x.dtype}"
        raise InputError(f"{path} is no model that a node wrote: {what}; delete it to go on without it")
    if dim is not None and len(found.x) != dim:
        raise InputError(f"{path} is a model of {len(found.x)} parameters, and the scenario's has {dim}")
    return found


def keep_model(directory: Path, node: NodeId, last: ModelSnapshot) -> None:
    """Save a node's last model in the run `directory`. Raises RunError if it can't be written."""
    path = model_path(directory, node)
    with writing(path, RunError):
        path.parent.mkdir(exist_ok=True)
        write_snapshot(path, *last)
