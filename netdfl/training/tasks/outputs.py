"""Outputs of a model, of any type: tensors, alone or in tuples, mappings, dataclasses and other objects.

Losses and metrics receive outputs of the model's own type, such as Hugging Face's objects with `.logits`, so tensors
are processed inside a copy of the object. None stays None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor


def on_cpu(outputs: Any) -> Any:
    """Return a copy of a model's outputs with every tensor on the CPU."""
    return _of_tensors([outputs], lambda found: found[0].to("cpu", copy=True))


def together(batches: list[Any]) -> Any:
    """Join the outputs of minibatches: concatenate tensors along their first axis.

    A tensor without an axis, like a minibatch's loss, or one that can't be joined to the others becomes None.
    """
    return _of_tensors(batches, _one_after_the_other)


def _one_after_the_other(found: list[Tensor]) -> Tensor | None:
    alike = {each.shape[1:] for each in found}
    return torch.cat(found) if found[0].dim() and len(alike) == 1 else None


def _of_tensors(same: list[Any], function: Callable[[list[Tensor]], Tensor | None], *, inside: bool = False) -> Any:
    """Combine model outputs of the same structure by applying `function` to the list of tensors at each position.

    `inside` is true for parts of outputs.
    """
    first = same[0]
    if isinstance(first, Tensor):
        return function(same) if all(isinstance(each, Tensor) for each in same) else None
    parts = [_parts(each, inside) for each in same]
    if any(each.keys() != parts[0].keys() for each in parts):
        return None
    found = {key: _of_tensors([each[key] for each in parts], function, inside=True) for key in parts[0]}
    return first if all(found[key] is parts[0][key] for key in found) else _rebuilt(first, found)


def _parts(outputs: Any, inside: bool) -> dict[Any, Any]:
    """Return the parts of outputs, by index, key or attribute; none for numbers, texts and, if `inside`, objects."""
    if isinstance(outputs, Mapping):
        return dict(outputs)
    if isinstance(outputs, tuple | list):
        return dict(enumerate(outputs))
    if is_dataclass(outputs):
        return {field.name: getattr(outputs, field.name) for field in fields(outputs)}
    return {} if inside else dict(getattr(outputs, "__dict__", {}))


def _rebuilt(outputs: Any, parts: dict[Any, Any]) -> Any:
    """Return an object like `outputs`, with other `parts`."""
    kind = type(outputs)
    if isinstance(outputs, tuple | list):
        return kind(*parts.values()) if hasattr(outputs, "_fields") else kind(list(parts.values()))
    if kind is dict:
        return parts
    made = copy(outputs)
    for key, value in parts.items():
        if isinstance(outputs, Mapping):
            made[key] = value
        else:
            object.__setattr__(made, key, value)  # frozen ones too
    return made
