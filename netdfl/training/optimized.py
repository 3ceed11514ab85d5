"""Local steps by an optimizer of `torch.optim`, on the flat vector.

With g~ the gradient of `netdfl.training.sgd` (SAM's, clipped), z = y / w, w the push-sum weight (1 without push-sum):

    z' = optimizer(z, g~);   y <- y + z' - z

The optimizer's state (Adam's means) begins anew every round, or each node keeps its own, which is not mixed.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor, optim

from netdfl.core.types import View
from netdfl.training.base import LocalData, Received, StepRequests, StepResult, Update
from netdfl.training.sgd import LocalSgd, carried
from netdfl.training.stepping import OptimizerChoice

_KINDS = (optim.Adam, optim.AdamW, optim.NAdam, optim.RAdam, optim.Adamax, optim.Adagrad, optim.Adadelta, optim.RMSprop)
_BY_NAME: dict[str, Callable[..., optim.Optimizer]] = {kind.__name__.lower(): kind for kind in _KINDS}


class OptimizerState(NamedTuple):
    """The optimizer's state, under the optimizer's own names; empty before the first step."""

    remembered: Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class OptimizedSgd(LocalSgd):
    """Local steps by a torch optimizer; `decay` is the optimizer's own weight decay."""

    optimizer: OptimizerChoice
    decay: float = 0.0

    def __post_init__(self) -> None:
        """Import the modules that torch's optimizers load on first use, which takes seconds, before processes fork."""
        importlib.import_module("torch._dynamo")

    def init(self, x: Tensor, view: View) -> OptimizerState:  # type: ignore[override]
        """Return an empty state, because the optimizer has made no step."""
        return OptimizerState({})

    def solve(  # type: ignore[override]
        self, state: OptimizerState, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[OptimizerState, Update]]:
        """Run the local round: yield its steps as one call, which the caller computes."""
        steps = _OptimizedSteps(self, y, weight, data, self.rate(view), dict(state.remembered))
        x, _ = yield steps
        return OptimizerState(steps.remembered if self.optimizer.state == "kept" else {}), Update(y, x)

    def made(self, vector: Tensor, lr: float) -> optim.Optimizer:
        """Create the optimizer of `vector`, with those options that its class supports."""
        kind = _BY_NAME[self.optimizer.name]
        options = {"lr": lr, "weight_decay": self.decay, "betas": self.optimizer.betas, "eps": self.optimizer.eps}
        known = inspect.signature(kind).parameters
        return kind([vector], **{name: value for name, value in options.items() if name in known})


@dataclass(eq=False)
class _OptimizedSteps:
    sgd: OptimizedSgd
    y: Tensor
    weight: float
    data: LocalData
    lr: float
    remembered: dict[str, Tensor] = field(default_factory=dict)

    def __call__(self) -> StepResult:
        """Compute the steps; return the vector after them, and their number."""
        still = getattr(self.data, "still", 0)
        y, z, count = self.y.clone(), self.y.clone(), 0
        optimizer = self.sgd.made(z, self.lr)
        if self.remembered:
            optimizer.state[z] = {name: value.clone() for name, value in self.remembered.items()}
        for gradient in self.data.steps(epochs=self.sgd.epochs, steps=self.sgd.steps):
            z.copy_(y if self.weight == 1.0 else y / self.weight)
            z.grad = self.sgd.descent(gradient, z)
            y = carried(self.data, y, self.weight)
            before = z.clone()
            optimizer.step()
            y = z.clone() if self.weight == 1.0 else y.add_(z - before)
            if still:
                y[-still:] = self.y[-still:]
            count += 1
        self.remembered = {name: value for name, value in optimizer.state[z].items() if isinstance(value, Tensor)}
        return y, count
