"""The state of a module besides its trained parameters: all reachable objects that change when it runs.

Nodes of one process share a module until the module is found to have changed state for one of them; from then on that
node has its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from netdfl.core.errors import TrainingError
from netdfl.training.base import Kept
from netdfl.training.models.copying import copied, copied_for_each
from netdfl.training.models.reach import NOTHING_THERE, places, same, told


class OriginalModule:
    """A module as it was built, which makes equal modules and finds changes in another one."""

    def __init__(self, module: nn.Module, but: Collection[str] = ()) -> None:
        """Copy `module`, and record its state except trained parameters and the buffers `but`.

        Raises ValueError where it can't be copied.
        """
        self.but = frozenset(but)
        self.shared: set[str] = set()
        self.leak: str | None = None
        self._module = copied_for_each(module, light=True, shared=self.shared)
        self._remember()

    def _remember(self) -> None:
        self._before = dict(self._places(self._module))
        self.nbytes = sum(value.nbytes for value in self._before.values() if isinstance(value, Tensor | np.ndarray))

    def _places(self, module: nn.Module) -> Iterator[tuple[str, Any]]:
        return ((place, told(value)) for place, value in places(module) if place not in self.but)

    def made(self) -> nn.Module:
        """Return an equal module with separate state. Raises TrainingError if some state can't be copied."""
        if self.refusal is not None:
            raise TrainingError(self.refusal)
        return copied(self._module, light=True)

    @property
    def refusal(self) -> str | None:
        """The reason why no more equal modules can be made, once one has changed state that all share; None before."""
        what = f"the model keeps {self.leak}, which can't be copied for each node"
        return None if self.leak is None else f"{what}: keep tensors, numbers and containers of these"

    def look_for_leaks(self, module: nn.Module) -> None:
        """Check whether `module` changed state that all modules share; if so, no more modules are made."""
        for place, value in self._places(module):
            if place in self.shared and not same(value, self._before.get(place, NOTHING_THERE)):
                self.leak = f"its {place!r}"

    def to(self, device: str | torch.device) -> None:
        """Move the stored copy of the module to a device."""
        self._module.to(device)
        self._remember()

    def changed(self, module: nn.Module) -> str | None:
        """Return the path of names to an object of `module` that differs from the original; None if none does."""
        gone = set(self._before)
        for place, value in self._places(module):
            if not same(value, self._before.get(place, NOTHING_THERE)):
                return place
            gone.discard(place)
        return min(gone, default=None)

    def kept(self, module: nn.Module) -> Kept:
        """Return the buffers and frozen parameters of `module` that have changed."""
        named = {name: p for name, p in module.named_parameters() if not p.requires_grad} | dict(module.named_buffers())
        return {
            name: tensor.detach().clone()
            for name, tensor in named.items()
            if name not in self.but and not same(tensor, self._before.get(name, NOTHING_THERE))
        }

    @torch.no_grad()
    def give(self, module: nn.Module, kept: Kept) -> None:
        """Write the buffers and frozen parameters `kept` to `module`."""
        for name, value in kept.items():
            owner, _, last = name.rpartition(".")
            part = module.get_submodule(owner)
            tensor = getattr(part, last, None)
            if isinstance(tensor, Tensor) and tensor.shape == value.shape:
                tensor.copy_(value)
            else:
                part.register_buffer(last, value.clone(), persistent=last not in part._non_persistent_buffers_set)
