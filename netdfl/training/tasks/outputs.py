"""What a model gives, of whatever type: tensors, alone or in tuples, mappings, dataclasses and objects with attributes.

Losses and figures are given outputs of the type that the model gives, as Hugging Face's models give objects with
`.logits`, so what is done to tensors is done inside a copy of the object. None stays None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor


def on_cpu(outputs: Any) -> Any:
    """A copy, with every tensor on the CPU."""
    return _of_tensors([outputs], lambda found: found[0].to("cpu", copy=True))


def together(batches: list[Any]) -> Any:
    """The outputs of some minibatches as those of one: tensors one after the other, along their first axis.

    A tensor that has no axis, like a minibatch's loss, or that can't be joined to the others is None.
    """
    return _of_tensors(batches, _one_after_the_other)


def _one_after_the_other(found: list[Tensor]) -> Tensor | None:
    alike = {each.shape[1:] for each in found}
    return torch.cat(found) if found[0].dim() and len(alike) == 1 else None


def _of_tensors(same: list[Any], function: Callable[[list[Tensor]], Tensor | None], *, inside: bool = False) -> Any:
    """One of some outputs of the same form: for the tensors at each place what `function` makes of them."""
    first = same[0]
    if isinstance(first, Tensor):
        return function(same) if all(isinstance(each, Tensor) for each in same) else None
    parts = [_parts(each, inside) for each in same]
    if any(each.keys() != parts[0].keys() for each in parts):
        return None
    found = {key: _of_tensors([each[key] for each in parts], function, inside=True) for key in parts[0]}
    return first if all(found[key] is parts[0][key] for key in found) else _rebuilt(first, found)


def _parts(outputs: Any, inside: bool) -> dict[Any, Any]:
    """What `outputs` is made of, by index, key or attribute; nothing for a number, a text, None, an unknown thing."""
    if isinstance(outputs, Mapping):
        return dict(outputs)
    if isinstance(outputs, tuple | list):
        return dict(enumerate(outputs))
    if is_dataclass(outputs):
        return {field.name: getattr(outputs, field.name) for field in fields(outputs)}
    return {} if inside else dict(getattr(outputs, "__dict__", {}))


def _rebuilt(outputs: Any, parts: dict[Any, Any]) -> Any:
    """An object like `outputs`, with other `parts`."""
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
