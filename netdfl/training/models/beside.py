"""Checks of a loss: whether it uses trained tensors, or state of its own, beside the model's outputs and the targets.

netdfl runs copies of a module, and points their parameters at the vector of the node that trains. A loss that reaches
parameters by another way, as by `self.net` of a task, reaches the parameters of a module that nobody trains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from netdfl.training.data.examples import Tree, mapped
from netdfl.training.drawing import seeded
from netdfl.training.models.buffers import applied
from netdfl.training.models.common import SharedStateWatch

_GROWS = "the model makes parameters, or sets requires_grad, as it trains: do so in __init__, or use lazy layers"
_ORIGINAL = (
    "the loss reaches the model's parameter {!r} otherwise than by the outputs, and nodes train copies of the model: "
    "let forward return what the loss needs beside the prediction, such as a penalty, and the loss add it; "
    "algorithm.weight_decay is a penalty on all weights"
)
_STRANGER = (
    "the loss depends on a tensor of shape {} that wants a gradient and is no parameter of the model, so nothing "
    "trains it: make it one (nn.Parameter of a module, nn.ModuleList for a list of layers), or set "
    "requires_grad_(False)"
)
_STATE = (
    "the loss changes {}, and one loss serves all nodes of a process: where its value depends on that, keep it in the "
    "module (self....), and let forward return it"
)


def notes_on_loss(copy: nn.Module, original: nn.Module, loss: Callable[..., Any], x: Tree, y: Tree) -> list[str]:
    """Return notes on what `loss` uses beside the outputs of `copy`, a copy of the module `original`, for `x` and `y`.

    Raises ValueError where the loss can't be trained with, or where the model makes parameters as it trains.
    """
    trained = len(_trained(copy))
    watch = SharedStateWatch(None, loss)
    try:
        for _ in range(2):  # a constant is made when it is first needed
            watch.settle()
            with seeded(0, _trained(copy)[0].device):
                found = loss(applied(copy.train(), mapped(x, Tensor.clone)), mapped(y, Tensor.clone))
            state = watch.changed()
        leaves = trained_leaves(found)
    except Exception:
        return []  # what does not run says so when it is run
    if len(_trained(copy)) != trained:
        raise ValueError(_GROWS)
    ours, theirs = set(map(id, copy.parameters())), {id(p): name for name, p in original.named_parameters()}
    strangers = [leaf for leaf in leaves if id(leaf) not in ours]
    if name := next((theirs[id(leaf)] for leaf in strangers if id(leaf) in theirs), ""):
        raise ValueError(_ORIGINAL.format(name))
    notes = [] if state is None else [_STATE.format(state)]
    return [*notes, *(_STRANGER.format(tuple(leaf.shape)) for leaf in strangers[:1])]


def _trained(module: nn.Module) -> Sequence[nn.Parameter]:
    return [p for p in module.parameters() if p.requires_grad]


def trained_leaves(loss: Tensor) -> list[Tensor]:
    """Return the tensors that the gradient of `loss` would be added to: those with `requires_grad` that it used."""
    left: list[Any] = [loss.grad_fn]
    seen: set[Any] = set()
    found: list[Tensor] = []
    while left:
        step = left.pop()
        if step is None or step in seen:
            continue
        seen.add(step)
        if (variable := getattr(step, "variable", None)) is not None:
            found.append(variable)
        left.extend(earlier for earlier, _ in step.next_functions)
    return found
