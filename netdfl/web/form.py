"""The form by which a page repeats a run with other values: a field for each key, made from the schema of scenarios.

No user's module is imported here: the user sees which modules a run would execute before any of them is executed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from pydantic_core import from_json

from netdfl.core.errors import InputError
from netdfl.core.files import read_plain
from netdfl.scenario.json_schema import FILE
from netdfl.scenario.loading.document import parse
from netdfl.scenario.loading.overrides import Override, parse_override
from netdfl.scenario.model.choices import is_own
from netdfl.scenario.model.plugins import places

Schema: TypeAlias = Mapping[str, Any]
Field: TypeAlias = dict[str, object]
MOST_FIELDS = 2000
MOST_VALUE = 20_000
FIXED = ("schema",)
"""Keys whose values can't be changed."""
_ENDING = (".", "=")
"""Characters that would end a key in an override, `path=value`. A mapping that has such keys is one field of the form.

Any other mapping has a field for each of its keys.
"""


def read_scenario(run: Path) -> Mapping[str, object]:
    """Return the scenario of a run with all defaults written out. Raises InputError if the file is damaged."""
    data = parse(read_plain(run / "scenario.yaml"), "scenario.yaml").data
    if not isinstance(data, dict):
        raise InputError(f"{run / 'scenario.yaml'} is no scenario: expected keys with values")
    return data


def fields(data: Mapping[str, object]) -> list[Field]:
    """Return the fields of the form: the key, the present value as text, and what the schema says about it."""
    found: list[Field] = []
    for path, value, schemas in _leaves(data, [_schema()], ()):
        if path[0] not in FIXED and len(found) < MOST_FIELDS:
            found.append({"key": ".".join(path), "value": text_of(value), **_told(schemas)})
    return found


@cache
def _schema() -> Schema:
    schema: Schema = from_json(FILE.read_bytes())
    return schema


def _leaves(
    value: object, schemas: Sequence[Schema], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], object, Sequence[Schema]]]:
    """Yield each value that gets a field of its own, with its path in the scenario and the schemas that may fit it."""
    options = list(_options(schemas))
    if not isinstance(value, dict) or not value or any(sign in str(key) for key in value for sign in _ENDING):
        yield path, value, options
        return
    fitting = [each for each in options if _fits(each, value)] or options
    for key, inner in value.items():
        of_key = [found for each in fitting if (found := _of_key(each, str(key))) is not None]
        if key in _selectors(options):  # the choice among parts has the kinds of all parts
            of_key = [found for each in options if (found := each.get("properties", {}).get(key)) is not None]
        yield from _leaves(inner, of_key, (*path, str(key)))


def _options(schemas: Iterable[Schema]) -> Iterator[Schema]:
    """Yield the schemas; a schema that offers alternatives (`anyOf`) is replaced by one schema for each."""
    for each in schemas:
        if "anyOf" in each:
            words = {"description": each["description"]} if "description" in each else {}
            yield from _options({**option, **words} for option in each["anyOf"])
        else:
            yield each


def _selectors(options: Sequence[Schema]) -> set[str]:
    return {key for each in options for key, of in each.get("properties", {}).items() if "const" in of}


def _fits(schema: Schema, value: Mapping[str, object]) -> bool:
    """Return whether a mapping has the constant values, such as its `kind`, that the schema demands."""
    constants = {key: of["const"] for key, of in schema.get("properties", {}).items() if "const" in of}
    return "properties" in schema and all(value.get(key) == constant for key, constant in constants.items())


def _of_key(schema: Schema, key: str) -> Schema | None:
    found = schema.get("properties", {}).get(key)
    more = schema.get("additionalProperties")
    return found if found is not None else more if isinstance(more, dict) else None


def _told(schemas: Sequence[Schema]) -> Field:
    """Return a field's choices, its kind and its description, from the schemas that may describe it."""
    choices = [text_of(choice) for each in schemas for choice in _choices(each)]
    closed = all(_choices(each) or each.get("type") == "null" for each in schemas)
    kinds = {kind for each in schemas for kind in _types(each)}
    said = {str(each["description"]) for each in schemas if each.get("description")}
    words = said.pop() if len(said) == 1 else ""
    if kinds == {"boolean"}:
        choices, closed = ["true", "false"], True
    if closed and "null" in kinds:
        choices.append("null")
    told: Field = {"words": words} if words and words != "Which one." else {}
    if choices:
        told |= {"choices": list(dict.fromkeys(choices)), "closed": closed}
    return told | ({"number": True} if kinds and kinds <= {"integer", "number"} else {})


def _choices(schema: Schema) -> Sequence[object]:
    return [schema["const"]] if "const" in schema else schema.get("enum", ())


def _types(schema: Schema) -> Sequence[str]:
    kinds = schema.get("type", ())
    return [kinds] if isinstance(kinds, str) else kinds


def text_of(value: object) -> str:
    """Return a value as text on one line that reads back, as YAML, as the same value."""
    if isinstance(value, str):
        with suppress(InputError):
            if "\n" not in value and parse(value, "").data == value:
                return value
    return json.dumps(value, ensure_ascii=False)


def overrides_of(values: Mapping[str, str], known: Iterable[str]) -> list[str]:
    """Return the changed `values` of fields as overrides, `path=value`; `known` are the keys of all fields.

    Raises:
        InputError: A key is not in `known`, or a value is too long.
        ScenarioError: A value is no YAML.
    """
    keys = set(known)
    for key, text in values.items():
        if key not in keys or "\0" in text or len(text) > MOST_VALUE:
            raise InputError(f"{key[:80]!r} can't be changed here; load the page again, or run a file of your own")
    found = [f"{key}={text}" for key, text in values.items()]
    for each in found:
        parse_override(each)
    return found


def modules(run: Path, data: Mapping[str, object], overrides: Sequence[str]) -> list[dict[str, str]]:
    """Return the user's own parts that the scenario `data` of a run would execute with `overrides`.

    Each part is a text `module:callable`, with the file of the module.
    """
    changed = [parse_override(each) for each in overrides]
    named = dict.fromkeys([*_own(data, (), changed), *(own for each in changed for own in _own(each.value, (), ()))])
    return [{"module": name, "file": _file_of(name.partition(":")[0], run)} for name in named]


def _own(value: object, path: tuple[str, ...], changed: Sequence[Override]) -> Iterator[str]:
    """Yield the texts `module:callable` in the scenario's part at `path`, except for values that `changed` replaces."""
    if path and any(tuple(map(str, each.path)) == path for each in changed):
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _own(inner, (*path, str(key)), changed)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _own(inner, (*path, str(place)), changed)
    elif is_own(value):
        yield value


def _file_of(module: str, run: Path) -> str:
    """Return the file of a module beside the run or its scenario, found without importing anything.

    For a module that is not found there, the result is the text `an installed package`.
    """
    for folder in places(str(run)):
        place = folder.joinpath(*module.split("."))
        for file in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
            if file.is_file():
                return str(file)
    return "an installed package"
