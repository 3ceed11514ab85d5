"""Tables read as examples: data frames of pandas or polars, and `datasets.Dataset` of Hugging Face."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from netdfl.core.errors import DatasetError
from netdfl.training.data.examples import Examples, ReadSamples, Samples
from netdfl.training.data.reading import is_frame, kept, kind_of, real
from netdfl.training.data.trees import Tree, tensors


@dataclass(frozen=True)
class Asked:
    """Which columns a user asked for: the one to predict, those that it is predicted from."""

    target: str | None
    inputs: Sequence[str] | None


def from_hugging_face(data: Any, asked: Asked, what: str) -> Examples:
    """The rows of a `datasets.Dataset`. Raises DatasetError for a column that isn't there, or holds no numbers."""
    names = list(data.column_names)
    target = _target(asked, names, what)
    first = {name: data[0][name] for name in names}
    inputs = _inputs(asked, [name for name in names if name != target and _is_numeric(first[name])], names, what)
    for name in inputs:
        if not _is_numeric(first[name]):
            raise DatasetError(f"{what}: the column {name!r} holds {kind_of(first[name])}, expected numbers: encode it")
    if isinstance(first[target], str):  # names of classes
        data = data.class_encode_column(target)
    one_row = all(isinstance(first[name], int | float) for name in inputs)

    def read(place: int) -> tuple[Tree, Tree]:
        row = data[int(place)]
        if missing := [name for name in (*inputs, target) if row[name] is None]:
            raise ValueError(f"the column {missing[0]!r} is empty in row {place}: fill it, or drop the row")
        if one_row:
            return torch.tensor([float(row[name]) for name in inputs]), tensors(_listed(row[target]))
        x = tuple(real(tensors(_listed(row[name]))) for name in inputs)
        return x[0] if len(x) == 1 else x, tensors(_listed(row[target]))

    return kept(ReadSamples(read, np.arange(len(data))))


def from_frame(data: Any, asked: Asked, what: str) -> Examples:
    """The rows of a data frame. Raises DatasetError for a column that isn't there, or holds no numbers."""
    names = [str(name) for name in data.columns]
    target = _target(asked, names, what)
    arrays = {name: np.asarray(data[name]) for name in names}
    numbers = [name for name in names if name != target and arrays[name].dtype.kind in "biuf"]
    inputs = _inputs(asked, numbers, names, what)
    for name in inputs:
        if arrays[name].dtype.kind not in "biuf":
            raise DatasetError(f"{what}: the column {name!r} holds {arrays[name].dtype}, expected numbers: encode it")
    x = np.stack([arrays[name].astype(np.float32) for name in inputs], 1)
    y = arrays[target]
    if y.dtype.kind not in "biuf":
        _, y = np.unique(y, return_inverse=True)
    if np.isnan(x).any() or (y.dtype.kind == "f" and np.isnan(y).any()):
        raise DatasetError(f"{what} has empty cells: fill them, or drop their rows")
    return Samples(torch.from_numpy(x), tensors(y))


def _is_numeric(value: Any) -> bool:
    """Whether a model can take `value`: a number, lists of them, an array or a picture."""
    while isinstance(value, list) and value:
        value = value[0]
    return value is not None and not isinstance(value, str | bytes | Mapping)


def _listed(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, list) else value


def _target(asked: Asked, names: list[str], what: str) -> str:
    if asked.target in names:
        return str(asked.target)
    said = "names no column to predict" if asked.target is None else f"has no column {asked.target!r}"
    raise DatasetError(f"{what} {said}: set target to one of {', '.join(names)}")


def _inputs(asked: Asked, usual: list[str], names: list[str], what: str) -> list[str]:
    inputs = usual if asked.inputs is None else list(asked.inputs)
    if missing := [name for name in inputs if name not in names]:
        raise DatasetError(f"{what} has no column {missing[0]!r}: set inputs to some of {', '.join(names)}")
    if not inputs:
        raise DatasetError(f"{what} has no column of numbers beside the target: set inputs")
    return inputs


def columns_of(data: Any) -> dict[str, NDArray[Any]]:
    """What examples can be shared out by: the columns of a table."""
    if is_frame(data):
        return {str(name): np.asarray(data[name]) for name in data.columns}
    if hasattr(data, "column_names") and hasattr(data, "features"):
        scalar = [name for name in data.column_names if isinstance(data[0][name], str | int | float)]
        return {name: np.asarray(data[name]) for name in scalar}
    return {}
