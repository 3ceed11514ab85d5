"""The reading and writing of tensors and vectors in safetensors files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import safe_open

from netdfl.compression.vector import Vector

if TYPE_CHECKING:
    from torch import Tensor


def as_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str], *, apart: bool = True) -> bytes:
    """Return tensors as the contents of a safetensors file; torch is imported only if a tensor is torch's.

    `apart` says that no tensors share memory, which safetensors refuses. If it is false, each tensor is copied.
    """
    if all(isinstance(each, Vector) for each in tensors.values()):
        from safetensors.numpy import save as save_arrays

        return save_arrays({name: each.numpy() for name, each in tensors.items()}, dict(metadata))
    import torch
    from safetensors.torch import save

    alike = {n: torch.from_numpy(each.numpy()) if isinstance(each, Vector) else each for n, each in tensors.items()}
    whole = {name: each.detach().cpu().contiguous() for name, each in alike.items()}
    return save(whole if apart else {name: each.clone() for name, each in whole.items()}, dict(metadata))


def read(path: str | Path, *, torch: bool) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors of a file, as torch tensors or as `Vector`s, and its metadata.

    Raises OSError, SafetensorError, or ValueError or TypeError for a damaged file.
    """
    with safe_open(str(path), "pt" if torch else "np") as file:
        found = {name: file.get_tensor(name) for name in file.keys()}
        metadata = dict(file.metadata() or {})
    return (found if torch else {name: each.view(Vector) for name, each in found.items()}), metadata
