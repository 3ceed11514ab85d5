"""Overrides by `--set path=value`, and the keys of the file that an override replaces."""

from __future__ import annotations

from typing import NamedTuple

from pydantic_core import PydanticCustomError

from netdfl.core.errors import Problem, ScenarioError
from netdfl.scenario.loading.document import Document, Path, SourcePlace, item, parse
from netdfl.scenario.loading.normalize import annotation_at, choices_of, fields_of, normalize

Tree = dict[str, object] | list[object]


class Override(NamedTuple):
    """One `--set` override: its text, its path, and its value."""

    text: str
    path: Path
    value: object

    @property
    def place(self) -> SourcePlace:
        """The place (`--set` text in place of a file) at which mistakes of the override are reported."""
        return SourcePlace(self.text)


def parse_override(text: str) -> Override:
    """Parse `path=value`, where the value is YAML. Raises ScenarioError."""
    written = f"--set {text}"
    path, equals, value = text.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise ScenarioError([Problem(f"{text!r} is no override", "expected path=value, like rounds=10", file=written)])
    try:
        parsed = parse(value, "--set").data
    except ScenarioError as exc:
        raise ScenarioError([Problem(exc.problems[0].what, file=written)]) from exc
    return Override(written, tuple(int(key) if key.isdigit() else key for key in keys), parsed)


def on_world(kind: str, others: list[Override]) -> Override:
    """Return `--on kind` as an override. Raises ScenarioError if one of `others` names another world."""
    for other in others:
        value = other.value.get("kind") if isinstance(other.value, dict) else other.value
        if other.path in (("world",), ("world", "kind")) and value not in (None, kind):
            raise ScenarioError(
                [Problem(f"the run is to be on {kind}, by --on", "", "remove one of the two", other.text)]
            )
    return Override(f"--on {kind}", ("world", "kind"), kind)


def apply(document: Document, overrides: list[Override], directory: str) -> list[str]:
    """Write `overrides` into the normalized `document`; return a notice for each key of the file that was dropped.

    Where an override names another component (`algorithm.name`, any `kind`), the file's keys for the old component are
    dropped if the new one lacks them. An override of `local_steps` drops `local_epochs`, and vice versa. Keys that an
    override sets are never dropped, so the checks report wrong ones.
    """
    overrides = list(overrides)
    for index, override in enumerate(overrides):
        overrides[index] = _fitting(override, document.data)
        _write(document, overrides[index])
        normalize(document, directory)
    given = {override.path for override in overrides}
    notices = [notice for override in overrides for notice in _drop_foreign(document, override, given, directory)]
    notices += [notice for override in overrides for notice in _drop_replaced(document, override, given)]
    normalize(document, directory)
    return notices


def _fitting(override: Override, data: object) -> Override:
    """Return the override with integer keys only where they index lists; keys of mappings are text."""
    path: list[str | int] = []
    for key in override.path:
        path.append(key if isinstance(data, list) else str(key))
        data = item(data, path[-1])
    return override._replace(path=tuple(path))


def _write(document: Document, override: Override) -> None:
    if not isinstance(document.data, dict):
        document.data = {}
    parent: Tree = document.data
    path = override.path
    for depth, key in enumerate(path[:-1]):
        child = _step(parent, key, override)
        if not isinstance(child, dict | list):
            child = {}
            parent[key] = child  # type: ignore[index]
            document.keys[path[: depth + 1]] = document.values[path[: depth + 1]] = override.place
        parent = child
    _step(parent, path[-1], override)
    parent[path[-1]] = override.value  # type: ignore[index]
    for places in (document.keys, document.values):
        for old in [place for place in places if place[: len(path)] == path]:
            del places[old]
        places[path] = override.place


def _step(parent: Tree, key: str | int, override: Override) -> object:
    """Return the child of `parent` at `key`, on the override's path. Raises ScenarioError if a list lacks the item."""
    if isinstance(parent, list):
        if not isinstance(key, int) or key >= len(parent):
            remedy = f"write a number from 0 to {len(parent) - 1}" if parent else "the list is empty"
            raise ScenarioError([Problem(f"the list has no item {key!r}", "", remedy, override.text)])
        return parent[key]
    return parent.get(str(key))


def _drop_foreign(document: Document, override: Override, given: set[Path], directory: str) -> list[str]:
    parent = override.path[:-1]
    annotation, siblings = annotation_at(document.data, parent, directory)
    choices = choices_of(annotation)
    if choices is None or override.path[-1] != choices.key:
        return []
    try:
        known = fields_of(choices.model(override.value, directory))
    except PydanticCustomError:
        return []
    assert isinstance(siblings, dict)
    dropped = [
        key
        for key in siblings
        if key not in known and not any(path[: len(parent) + 1] == (*parent, key) for path in given)
    ]
    for key in dropped:
        del siblings[key]
    where = "".join(f"{each}." for each in parent)
    return [f"{where}{key} is dropped: {override.value} has no such key" for key in dropped]


_LENGTHS = {"local_epochs": "local_steps", "local_steps": "local_epochs"}
"""The two keys for the length of a local round: each key with the one that it replaces."""


def _drop_replaced(document: Document, override: Override, given: set[Path]) -> list[str]:
    """Drop the file's other key for the length of local rounds, which an override replaces; return notices."""
    parent, key = override.path[:-1], str(override.path[-1])
    siblings = item(document.data, "algorithm")
    other = _LENGTHS.get(key, "")
    if parent != ("algorithm",) or override.value is None or not isinstance(siblings, dict):
        return []
    if siblings.get(other) is None or (*parent, other) in given:
        return []
    del siblings[other]
    return [f"algorithm.{other} is dropped: {key} says how long a local round is"]
