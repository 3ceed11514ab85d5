"""A module whose parameters are views of one flat vector, so that one vector is the whole model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import reduce
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from netdfl.core.errors import TrainingError
from netdfl.training.base import NOTHING, Kept
from netdfl.training.data.examples import Tree, leaves, mapped
from netdfl.training.drawing import EVERY, Source, seeded
from netdfl.training.models.beside import notes_on_loss
from netdfl.training.models.buffers import BufferPolicy, Buffers, applied, estimate
from netdfl.training.models.common import SharedStateWatch
from netdfl.training.models.copying import copied, uncompiled
from netdfl.training.models.inputs import as_taken
from netdfl.training.models.reach import ModuleWatch
from netdfl.training.models.state import OriginalModule
from netdfl.training.perceptron import Perceptron

Loss: TypeAlias = Callable[[Any, Any], Tensor]
"""A function of outputs and targets that returns the mean loss over a minibatch."""

_COPYING = threading.Lock()
_SHARED = "the model changes {}, which it shares with the models of all other nodes: keep it in the module (self....)"


class BoundModule:
    """A module, the flat vector of which its parameters are currently views, and whether it is in training mode."""

    def __init__(self, module: nn.Module) -> None:
        """Wrap a module that is not bound to a vector and whose mode (training or evaluation) is unknown."""
        self.module = module
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self.at: Tensor | None = None
        self.training: bool | None = None
        self.version = -1
        self._watches: dict[bool, ModuleWatch] = {}

    def keeps(self, original: OriginalModule) -> str | None:
        """Return the path of names to an object of the module that differs from `original`; None if none does.

        Fast if the module was not written to since the last comparison.
        """
        watch = self._watches.get(self.module.training)
        if watch is not None and watch.untouched():
            return None
        place = original.changed(self.module)
        if place is None:
            self._watches[self.module.training] = ModuleWatch(self.module, original.but)
        return place

    @property
    def versions(self) -> int:
        """A number that grows with each write to a parameter, from torch's version counters."""
        return sum(p._version for p in self.parameters)

    def turn(self, *, training: bool) -> nn.Module:
        """Switch the whole module to training or evaluation mode."""
        if self.training != training:
            self.module.train(training)
            self.training = training
        return self.module


class FlatModel:
    """A module that runs at any flat parameter vector, without copying the vector.

    The module's parameters are pointed at views of the vector in use; gradients come back as one flat vector. Many
    nodes of one process can share a `FlatModel`, each with a vector of its own. So can threads: each thread after the
    first uses a copy of the module.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss | None = None,
        *,
        buffers: Iterable[str] = (),
        policy: BufferPolicy = "average",
    ) -> None:
        """Use `module` itself, not a copy; it is on one device. The default `loss` is cross-entropy of single labels.

        `buffers` are the names of its running statistics, which `policy` governs: if they are averaged over nodes, they
        are the vector's last coordinates. Frozen parameters stay unchanged. The vector has the widest number type of
        the parameters.
        """
        self.module, self.policy = module, policy
        for part in module.modules():
            if isinstance(part, nn.Embedding | nn.EmbeddingBag):
                part.sparse = False  # equal numbers, in a form that the vector has a place for
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self._places = list(_places(module, self.parameters))
        self.buffers = Buffers(module, buffers)
        self.num_trained = sum(p.numel() for p in self.parameters)
        self.still = self.buffers.size if policy == "average" else 0
        self.dim = self.num_trained + self.still
        self.shapes = tuple(tuple(p.shape) for p in self.parameters) + ((self.still,),) * bool(self.still)
        self.dtype = _widest(p.dtype for p in self.parameters)
        self._views = all(p.dtype == self.dtype for p in self.parameters)
        self._sizes = [p.numel() for p in self.parameters]
        self._loss = loss
        self.keeps: str | None = None
        self.keeps_buffers = False
        self.writes = self.writes_examples = False
        self.notes: list[str] = []
        self.perceptron = Perceptron.of(module) if self.stackable else None
        self.sources: frozenset[Source] | None = None if self.perceptron is None else frozenset()
        self.in_rows = True
        self.original = None if self.perceptron is not None else OriginalModule(module, self.buffers.names)
        self._common = None if self.perceptron is not None else SharedStateWatch(module)
        self._bound: dict[int, BoundModule] = {}
        self._own: dict[Hashable, BoundModule] = {}
        self._use = threading.local()
        self._unused: nn.Module | None = module

    @property
    def own_modules(self) -> dict[str, int]:
        """The number of nodes with a module of their own, and the bytes of these modules; empty if there are none.

        A node gets a module of its own once the shared one has changed state for it.
        """
        nbytes = 0 if self.original is None else self.original.nbytes
        return {"own_modules": len(self._own), "own_modules_bytes": len(self._own) * nbytes} if self._own else {}

    @property
    def stackable(self) -> bool:
        """Whether many nodes' gradients can be computed together: default loss, and no running statistics."""
        plain = not (self.writes or self.writes_examples or self.keeps)
        return self._loss is None and not self.buffers.size and self._views and plain

    @property
    def uses_cross_entropy(self) -> bool:
        """Whether the loss is cross-entropy with a single class per example."""
        return self._loss is None

    def flat(self) -> Tensor:
        """Return the current parameters and averaged statistics as one fresh vector of shape (d,)."""
        found = torch.cat([p.detach().reshape(-1).to(self.dtype) for p in self.parameters])
        return torch.cat([found, self.buffers.start.to(found)]) if self.still else found

    def bind(self, at: Tensor, *, training: bool) -> nn.Module:
        """Point the parameters at views of `at`, shape (d,), and return this thread's module, training or evaluating.

        For evaluation, the coordinates of `at` beyond the parameters are the running statistics.
        """
        if len(at) not in (self.num_trained, self.num_trained + self.buffers.size):
            raise RuntimeError(f"a vector of {len(at)} numbers for a model of {self.num_trained}")
        bound = self._of_this_thread()
        if bound.at is not at or not self._views:
            pieces = at[: self.num_trained].split(self._sizes)
            for parameter, piece, shape in zip(bound.parameters, pieces, self.shapes, strict=False):
                parameter.data = piece.view(shape).to(parameter.dtype)
            bound.at = at
        bound.version = bound.versions if training else -1
        if not training and len(at) > self.num_trained:
            self.buffers.write(bound.module, at[self.num_trained :])
        return bound.turn(training=training)

    def settled(self, at: Tensor, batches: Iterable[Tree]) -> Tensor:
        """Return `at`, shape (d,), followed by the model's running statistics there, estimated from input batches."""
        module = self.bind(at, training=False)
        self.buffers.write(module, self.buffers.start)
        estimate(module, batches)
        return torch.cat([at, self.buffers.read(module).to(at)])

    @contextmanager
    def statistics(self) -> Iterator[nn.Module]:
        """Restore the running statistics of this thread's module after the context."""
        module = self._of_this_thread().module
        before = self.buffers.read(module)
        yield module
        self.buffers.write(module, before)

    @contextmanager
    def used_by(self, owner: Hashable | None, kept: Kept = NOTHING) -> Iterator[None]:
        """Let the node `owner` use the module inside the context, with its stored state `kept`; None: no node owns it.

        If the module's state has changed afterwards, the module belongs to this owner from then on, and others get an
        unchanged one. Raises TrainingError where that is impossible, or where an owner has changed state that all
        modules share.
        """
        if self.original is None:
            yield
            return
        outer: BoundModule | None = getattr(self._use, "bound", None)
        bound = self._own.get(owner) if owner is not None else None
        if bound is None:
            bound = self._of_this_thread() if outer is None else BoundModule(self.original.made())
        if kept:
            self.original.give(bound.module, kept)
        self._use.bound = bound
        try:
            yield
        finally:
            self._use.bound = outer
            if outer is None and (owner is None or owner not in self._own):
                self._sort(bound, owner, self.original)
        if owner is not None and self._common is not None and (place := self._common.changed()) is not None:
            raise TrainingError(_SHARED.format(place))

    def _sort(self, bound: BoundModule, owner: Hashable | None, original: OriginalModule) -> None:
        """Reserve a module whose state has changed for its owner, a node, and put an unchanged one in its place."""
        place = bound.keeps(original)
        if place is None:
            return
        original.look_for_leaks(bound.module)
        self.keeps = place
        if bound.module is self.module and original.leak is None:
            self.module = original.made()
            self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        with _COPYING:
            self._bound = {thread: each for thread, each in self._bound.items() if each is not bound}
            if owner is not None:
                self._own[owner] = bound

    def renewed(self, at: Tensor, kept: Kept, batches: Iterable[Tree]) -> Kept:
        """Return the buffers `kept` by a node, updated by a training pass of the model at `at` over `batches`."""
        with self.used_by(None, kept), seeded(0, at.device), torch.no_grad():
            module = self.bind(at.clone(), training=True)
            for x in batches:
                applied(module, x)
            return self.kept()

    def forget(self, owner: Hashable) -> None:
        """Discard the module with the changed state of the node `owner`, which then starts from the initial state."""
        self._own.pop(owner, None)

    def kept(self) -> Kept:
        """Return the changed buffers and frozen parameters of this thread's module, without running statistics."""
        if self.original is None or self._of_this_thread().keeps(self.original) is None:
            return NOTHING
        return self.original.kept(self._of_this_thread().module)

    def to(self, device: str) -> None:
        """Move the module to a device."""
        self.module.to(device)
        if self.original is not None:
            self.original.to(device)

    def made(self, at: Tensor) -> nn.Module:
        """Return a new, independent module in evaluation mode with the parameters `at`, shape (d,)."""
        found = uncompiled(copied(self.bind(at, training=False)))
        for parameter in found.parameters():
            parameter.data = parameter.data.clone()
        return found.eval()

    def _of_this_thread(self) -> BoundModule:
        used: BoundModule | None = getattr(self._use, "bound", None)
        bound = self._bound.get(threading.get_ident()) if used is None else used
        if bound is None:
            with _COPYING:
                module, self._unused = self._unused, None
                if module is None:  # not `or`: a module may have a length, or refuse to have one
                    module = self._another()
                bound = self._bound[threading.get_ident()] = BoundModule(module)
        return bound

    def _another(self) -> nn.Module:
        return copied(self.module, light=True) if self.original is None else self.original.made()

    def scores(self, at: Tensor, x: Tree) -> Tensor:
        """Return the training-mode outputs for inputs `x` at the parameters `at`, differentiable repeatedly by both."""
        pieces = zip(at[: self.num_trained].split(self._sizes), self.parameters, strict=True)
        vectors = [piece.view(p.shape).to(p.dtype) for piece, p in pieces]
        module = self._of_this_thread().turn(training=True)
        x = as_taken(module, x)
        args = (x,) if isinstance(x, Tensor) else () if isinstance(x, dict) else tuple(x)
        placed = {name: vectors[number] for name, number in self._places}
        scores: Tensor = functional_call(module, placed, args, x if isinstance(x, dict) else None, tie_weights=False)
        return scores

    def loss(self, outputs: Any, y: Tree) -> Tensor:
        """Return the mean loss of a minibatch's outputs for the targets `y`."""
        return cross_entropy(outputs, y) if self._loss is None else self._loss(outputs, y)

    def gradient(self, loss: Tensor, out: Tensor) -> Tensor:
        """Write the gradient of `loss` with respect to all parameters into `out`, shape (d,); 0 for unused ones."""
        parameters = self._of_this_thread().parameters
        grads = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        pieces = [(g.to_dense() if g.is_sparse else g).reshape(-1).to(self.dtype) for g in grads]
        if not self.still:
            return torch.cat(pieces, out=out)
        out[: self.num_trained] = torch.cat(pieces)
        out[self.num_trained :] = 0
        return out

    def slope(self, at: Tensor, x: Tree, y: Tree, out: Tensor) -> Tensor:
        """Write the gradient of the mean loss at `at` into `out`, shape (d,); return the loss."""
        if self.perceptron is not None:
            return self.perceptron.slope(at, x, y, out)
        loss = self.loss(applied(self.bind(at, training=True), x), y)
        self.gradient(loss, out)
        return loss.detach()

    def written(self, at: Tensor) -> Tensor | None:
        """Return `at`, the vector bound last in training, with values that the module wrote; None if it wrote none."""
        bound = self._of_this_thread()
        if self.perceptron is not None or bound.version == bound.versions:
            return None
        self.writes = True
        if not self._views:
            at[: self.num_trained] = torch.cat([p.detach().reshape(-1).to(at) for p in bound.parameters])
        return at

    def try_on(self, x: Tree, y: Tree) -> None:
        """Run a training pass, to find out which state the module changes, and which random generators it uses.

        Raises ValueError where the module keeps state in a class or a global, or makes parameters, or where the loss
        depends on parameters other than through the outputs. A second pass distinguishes such state from a constant
        that is made when it is first needed.
        """
        if self.perceptron is not None or self._common is None:
            return
        self._try_on(x, y)
        if self.original is not None and (refusal := self.original.refusal) is not None:
            raise ValueError(refusal)
        if self._common.changed() is not None:
            self._common.settle()
            self._try_on(x, y)
        if (place := self._common.changed()) is not None:
            raise ValueError(_SHARED.format(place))
        self.notes = notes_on_loss(self._another(), self.module, self._loss or cross_entropy, x, y)

    def _try_on(self, x: Tree, y: Tree) -> None:
        begun, given = self.flat(), mapped((x, y), Tensor.clone)
        at = begun.clone()
        with seeded(0, at.device) as drawn, self.used_by(None):
            with suppress(Exception):  # what does not run says so when it is run
                self.loss(applied(self.bind(at, training=True), given[0]), given[1])
                self.sources = drawn()
            self.writes = self.written(at) is not None or not torch.equal(at, begun)
            self.keeps_buffers = bool(self.kept())
            self.buffers.write(self.bind(begun, training=False), self.buffers.start)
        self.writes_examples = not all(map(torch.equal, leaves((x, y)), leaves(given)))

    @contextmanager
    def drawing(self, seed: int) -> Iterator[None]:
        """Seed the module's random draws inside the context, so that each call there has the same dropout masks."""
        if self.sources is not None and not self.sources:
            yield
            return
        with seeded(seed, self.parameters[0].device, EVERY if self.sources is None else self.sources) as drawn:
            yield
            self.sources = drawn() if self.sources is None else self.sources

    def draws(self, at: Tensor, x: Tree) -> bool:
        """Return whether the module draws random numbers in training, as dropout does; tried once, on `x`."""
        if self.sources is None:
            with self.drawing(0), torch.no_grad():
                applied(self.bind(at, training=True), x)
        return bool(self.sources)


def _places(module: nn.Module, parameters: list[nn.Parameter]) -> Iterator[tuple[str, int]]:
    """Yield the name of each parameter's place in the module, and the index of the parameter.

    torch's `functional_call` is no substitute: it leaves its replacements of tied parameters in a submodule that
    is used twice.
    """
    numbers = {id(p): number for number, p in enumerate(parameters)}
    for path, part in module.named_modules():
        for name, p in part.named_parameters(recurse=False, remove_duplicate=False):
            if id(p) in numbers:
                yield f"{path}.{name}".lstrip("."), numbers[id(p)]


def _widest(dtypes: Iterable[torch.dtype]) -> torch.dtype:
    """Return a type that holds all the given types: their common type, or at least float32."""
    different = set(dtypes)
    if len(different) == 1 and (only := next(iter(different))) in (torch.float32, torch.float64):
        return only
    return reduce(torch.promote_types, different, torch.float32)
