"""The construction of a model from a seed: equal parameters on every node, without affecting torch's own state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from netdfl.core.whose import named_error, own_place
from netdfl.training.data.examples import Tree, form, mapped
from netdfl.training.drawing import seeded
from netdfl.training.models.buffers import applied
from netdfl.training.models.copying import attributes, check_memory, copied_for_each, plain_name


def seeded_module(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Return the module that `make` builds on the CPU with random draws from `seed`; restore the generators.

    Raises ValueError where the result is no module.
    """
    with seeded(seed, torch.device("cpu")):
        module = make()
    if not isinstance(module, nn.Module):
        raise ValueError(f"the model function returned {type(module).__name__}: return a torch.nn.Module")
    return module.to("cpu")


def settle(module: nn.Module, x: Tree, seed: int) -> Tree:
    """Run the module once on `x` and return the outputs; if it makes no layers in its first call, a copy is run.

    Raises ValueError where the module does not take the data, has nothing to train, shares its parameters' memory, or
    can't be copied.
    """
    if unreal := [name for name, p in module.named_parameters() if p.requires_grad and p.dtype.is_complex]:
        remedy = "keep real and imaginary part as parameters, and join them in forward (torch.view_as_complex)"
        raise ValueError(f"the model trains {unreal[0]!r}, of complex numbers: {remedy}")
    lazy = any(map(is_lazy, (*module.parameters(), *module.buffers())))
    run = module if lazy else copied_for_each(module)
    before = attributes(run)
    outputs = _first_outputs(run, x, seed)
    if not lazy and _names(run) != _names(module):
        before = attributes(module)
        run, outputs = module, _first_outputs(module, x, seed)
    trained = [p for p in module.parameters() if p.requires_grad]
    if not trained:
        raise ValueError("the model has no parameter that is trained: leave requires_grad on for one at least")
    if odd := [p.dtype for p in trained if not p.is_floating_point()]:
        raise ValueError(f"the model trains a parameter of {odd[0]}: only real numbers can be averaged")
    check_memory(module, {place for place, tensor in attributes(run).items() if before.get(place) is not tensor})
    return outputs


def _names(module: nn.Module) -> list[str]:
    return [name for name, _ in (*module.named_parameters(), *module.named_buffers())]


def _first_outputs(module: nn.Module, x: Tree, seed: int) -> Tree:
    with seeded(seed, torch.device("cpu")), torch.no_grad():
        try:
            return applied(module.eval(), mapped(x, Tensor.clone))
        except Exception as error:
            raise ValueError(_not_taken(error, x)) from error


_MISFITS = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError)
"""PyTorch's errors for inputs that do not fit a module; any other error is a mistake in the module's code."""


def _not_taken(error: Exception, x: Tree) -> str:
    place = f" ({own})" if (own := own_place(error)) else ""
    if not isinstance(error, _MISFITS):
        return f"the model raised {named_error(error)}{place}"
    what = f"the model does not take the data, inputs of {form(x)}: {named_error(error)}{place}"
    return f"{what}; let its first layer fit them"


def load_initial(module: nn.Module, path: str | Path) -> None:
    """Load weights into `module` from a safetensors file, or from a state_dict that torch.save wrote.

    Raises ValueError where the file is none of these, or is of another model.
    """
    try:
        if Path(path).suffix == ".safetensors":
            from safetensors.torch import load_file

            found = load_file(path)
        else:
            found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        said = str(error).strip().partition("\n")[0][:200]
        what = f"{path} holds no weights ({type(error).__name__}: {said})"
        remedy = "give a .safetensors file, or what torch.save(model.state_dict(), file) wrote"
        raise ValueError(f"{what}: {remedy}") from error
    compiled = {plain_name(name): name for name in module.state_dict()}
    found = {compiled.get(plain_name(name), name): value for name, value in found.items()}
    tied = {name for group in _tied(module) for name in group if name not in found and group & set(found)}
    own = module.state_dict()
    missing = [name for name in own if name not in found and name not in tied]
    unknown = [name for name in found if name not in own]
    odd = [name for name in found if name in own and found[name].shape != own[name].shape]
    if odd:
        shapes = f"{tuple(found[odd[0]].shape)}, and the model's has {tuple(own[odd[0]].shape)}"
        raise ValueError(f"{path} is of another model: {odd[0]!r} has shape {shapes}")
    if missing or unknown:
        lacks = f"lacks {missing[0]!r}" if missing else f"has {unknown[0]!r}, which the model has not"
        more = len(missing) + len(unknown) - 1
        raise ValueError(f"{path} is of another model: it {lacks}" + (f" (and {more} more do not fit)" if more else ""))
    module.load_state_dict(found, strict=False)


def _tied(module: nn.Module) -> list[set[str]]:
    """Return groups of names that stand for the same parameter."""
    groups: dict[int, set[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), set()).add(name)
    return [group for group in groups.values() if len(group) > 1]
