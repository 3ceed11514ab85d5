"""The overrides that a study's case stands for: its mappings are merged with the scenario's.

For example, `world: {compute: 10ms}` sets one more key of the scenario's world and leaves its other keys. A mapping
that names a component, such as `{name: dfedsam, rho: 0.05}`, replaces the scenario's component with all its keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import NamedTuple

from netdfl.scenario.loading.document import Document, Path
from netdfl.scenario.loading.normalize import annotation_at, choices_of, normalize

_KEY = re.compile(r"[^.=\s]+")
"""A key that can stand in the path of an override."""


def written(value: object) -> str:
    """Return `value` as text for an override."""
    return value if isinstance(value, str) else json.dumps(value)


class CaseOverride(NamedTuple):
    """An override that a case stands for.

    Attributes:
        way: the keys that lead to the value in the case.
        path: the path of the value in the scenario.
        value: the value as text.
    """

    way: Path
    path: str
    value: str

    @property
    def text(self) -> str:
        """The override in the form of the option `--set`."""
        return f"{self.path}={self.value}"


def overrides_of(sets: Mapping[str, object], scenario: Mapping[str, object], directory: str) -> Iterator[CaseOverride]:
    """Yield the overrides of a case that sets values by path; `scenario` is the grid's scenario, as written.

    `directory` has the modules of the user's own.
    """
    base = Document("scenario", deepcopy(dict(scenario)))
    if any(isinstance(value, Mapping) for value in sets.values()):
        normalize(base, directory)
    for path, value in sets.items():
        yield from _overrides((path,), tuple(path.split(".")), value, base.data, directory)


def _overrides(way: Path, path: Path, value: object, base: object, directory: str) -> Iterator[CaseOverride]:
    """Yield the overrides for the `value` at `path`: one, or one for each key where it is merged with a mapping."""
    if not isinstance(value, Mapping) or _beside(path, value, base, directory) is None:
        yield CaseOverride(way, _joined(path), written(value) if len(way) == 1 else json.dumps(value))
    elif all(map(_KEY.fullmatch, value)):
        for key, each in value.items():
            yield from _overrides((*way, key), (*path, key), each, base, directory)
    else:  # a key has dots, such as the link [0..7]->8
        yield CaseOverride(way, _joined(path), json.dumps(_merged(path, value, base, directory)))


def _merged(path: Path, value: object, base: object, directory: str) -> object:
    if not isinstance(value, Mapping) or (there := _beside(path, value, base, directory)) is None:
        return value
    return {**there, **{key: _merged((*path, key), each, base, directory) for key, each in value.items()}}


def _beside(path: Path, value: Mapping[str, object], base: object, directory: str) -> Mapping[str, object] | None:
    """Return the scenario's mapping that `value` is merged with; None if `value` replaces what is there.

    Where the scenario has no value, the result is an empty mapping, because another override may set a key of it.
    """
    annotation, there = annotation_at(base, path, directory)
    choices = choices_of(annotation)
    there = {} if there is None and annotation is not None else there
    names_its_part = choices is not None and choices.key in value
    return there if value and isinstance(there, Mapping) and not names_its_part else None


def _joined(path: Path) -> str:
    return ".".join(map(str, path))
