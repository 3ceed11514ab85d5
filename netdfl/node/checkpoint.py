"""The state of a node on disk: tensors as safetensors, structure and numbers as JSON in its header, no pickle.

One file holds one state. It is written to a temporary name, made durable, then renamed, so that a crash leaves the old
file or the new one and never half of either.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from safetensors import SafetensorError

from netdfl.compression.tensor_files import as_bytes, read
from netdfl.compression.vector import Vector, is_tensor
from netdfl.core.errors import InputError
from netdfl.core.files import write_whole

if TYPE_CHECKING:
    from torch import Tensor

S = TypeVar("S")
HEADER = "netdfl-state/1"


def save_state(state: object, path: str | Path) -> None:
    """Write `state` to the file `path`, and return once the file is durable.

    A state is made of NamedTuples, tuples, lists, dicts with int or str keys, tensors, numbers, strings and None; a
    tensor that is in it twice is written once. Raises TypeError for anything else, and names the field that has it.
    """
    tensors: dict[int, Tensor] = {}
    structure = _describe(state, type(state).__name__, tensors)
    arrays = {str(k): tensor for k, tensor in enumerate(tensors.values())}
    write_whole(Path(path), as_bytes(arrays, {HEADER: json.dumps(structure)}, apart=False), durable=True)


def _describe(value: Any, where: str, tensors: dict[int, Tensor]) -> object:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if is_tensor(value):
        tensors.setdefault(id(value), value)
        return {"tensor": list(tensors).index(id(value))}
    if _is_named(value):
        fields = {n: _describe(v, f"{where}.{n}", tensors) for n, v in value._asdict().items()}
        return {"named": _name(type(value)), "fields": fields}
    if isinstance(value, tuple | list):
        return {type(value).__name__: [_describe(v, f"{where}[{i}]", tensors) for i, v in enumerate(value)]}
    if isinstance(value, Mapping) and all(type(key) in (int, str) for key in value):
        return {"dict": [[key, _describe(v, f"{where}[{key!r}]", tensors)] for key, v in value.items()]}
    raise TypeError(
        f"{where} is a {type(value).__name__}, which a checkpoint can't hold; "
        "use NamedTuples, tuples, lists, dicts with int or str keys, tensors, numbers, strings and None"
    )


def load_state(path: str | Path, like: S, *, remedy: str = "delete it to begin that node anew") -> S:
    """Read a state that `save_state` wrote; `like` has the same types and fields, such as the node's first state.

    Tensors are put on the device of the tensors of `like`. Raises InputError, which advises the `remedy`, if the file
    is damaged or holds the state of another algorithm or model.
    """
    mine = [part for part in _parts(like) if is_tensor(part)]
    plain = any(isinstance(part, Vector) for part in mine)
    try:
        found, metadata = read(path, torch=not plain)
        structure = json.loads(metadata[HEADER])
        tensors = [found[str(k)] for k in range(len(found))]
    except (OSError, SafetensorError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: expected a checkpoint, got {error!r}; {remedy}") from error
    placed = [t.to(mine[0].device) for t in tensors] if mine and not plain else tensors
    reader = _Reader(str(path), placed, _types(like))
    try:
        restored: S = reader.restore(structure, like, type(like).__name__)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: expected a checkpoint, got {error!r}; {remedy}") from error
    if not _alike(restored, like):
        raise InputError(f"{path}: expected a {type(like).__name__}, got {str(restored)[:80]}; {remedy}")
    return restored


def _alike(restored: Any, like: Any) -> bool:
    """Return whether `restored` has the same type as `like`; for a list of NamedTuples, also the same item types."""
    if type(restored) is not type(like):
        return False
    if not isinstance(like, list) or not all(map(_is_named, like)):
        return True
    return [type(each) for each in restored] == [type(each) for each in like]


class _Reader:
    """A checkpoint that is being restored: its tensors, and the NamedTuples that may occur in it."""

    def __init__(self, path: str, tensors: list[Tensor], types: dict[str, Any]) -> None:
        self.path, self.tensors, self.types = path, tensors, types

    def restore(self, node: object, like: object, where: str) -> Any:
        if not isinstance(node, dict):
            return node
        if "tensor" in node:
            return self._tensor(self.tensors[node["tensor"]], like, where)
        if "named" in node:
            return self._named(node["named"], node["fields"], like, where)
        if "dict" in node:
            known = like if isinstance(like, Mapping) else {}
            return {key: self.restore(v, known.get(key), f"{where}[{key!r}]") for key, v in node["dict"]}
        ((kind, items),) = node.items()
        alike = like if isinstance(like, tuple | list) and len(like) == len(items) else [None] * len(items)
        read = [self.restore(v, alike[i], f"{where}[{i}]") for i, v in enumerate(items)]
        return tuple(read) if kind == "tuple" else read

    def _tensor(self, tensor: Tensor, like: object, where: str) -> Tensor:
        if is_tensor(like) and (tensor.shape, tensor.dtype) != (like.shape, like.dtype):
            raise self._mismatch(where, f"{like.dtype} {list(like.shape)}", f"{tensor.dtype} {list(tensor.shape)}")
        return tensor

    def _named(self, name: str, fields: dict[str, object], like: Any, where: str) -> object:
        kind = self.types.get(name) or self._beside(name)
        expected = type(like) if _is_named(like) else kind
        has = set() if kind is None else set(kind._fields)
        since = has - fields.keys()  # what an earlier version did not have is what it is by default
        if kind is None or kind is not expected or fields.keys() - has or since - kind._field_defaults.keys():
            wanted = f"{_name(expected)} with {', '.join(expected._fields)}" if expected else "a state of this run"
            raise self._mismatch(where, wanted, f"{name} with {', '.join(fields)}")
        return kind(**{n: self.restore(v, getattr(like, n, None), f"{where}.{n}") for n, v in fields.items()})

    def _beside(self, name: str) -> Any:
        """Find the NamedTuple class `name` in a module that the state already uses; None if there is none.

        Needed where `like` has no value of this class, because its dict is empty, for example.
        """
        module, _, attribute = name.partition(":")
        if all(kind.__module__ != module for kind in self.types.values()):
            return None
        found = getattr(sys.modules[module], attribute, None)
        return found if isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields") else None

    def _mismatch(self, where: str, expected: str, got: str) -> InputError:
        return InputError(
            f"{self.path}: {where}: expected {expected}, got {got}; "
            "the checkpoint is of another algorithm or model, so start the run anew"
        )


def _is_named(value: object) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _types(like: object) -> dict[str, object]:
    return {_name(type(part)): type(part) for part in _parts(like) if _is_named(part)}


def _parts(value: object) -> Iterator[object]:
    yield value
    if isinstance(value, tuple | list):
        for item in value:
            yield from _parts(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _parts(item)
