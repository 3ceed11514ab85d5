"""The identity of a scenario: a hash of all non-default settings, and the hashes of older versions.

A key at its default is left out of the hash. So a new key with a default keeps the hashes of existing scenarios, and
their runs are still found.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from netdfl.links.spec import NODE_KEYS, SLOTS
from netdfl.scenario.model.fields import Choice, Function
from netdfl.scenario.model.links import link_choices
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.signatures import record_model


def _shares_fairly(scenario: Scenario) -> bool:
    """Return whether messages share a rate of an uplink or downlink fairly, which they did not in older versions."""
    entries = [entry.written() for entry in scenario.links.values()]
    parts = [entry[key] for entry in [*entries, *scenario.events] for key in NODE_KEYS if key in entry]
    said = [part if isinstance(part, Mapping) else vars(part) for part in parts if not isinstance(part, str | None)]
    return any(each.get("sharing", "fair") == "fair" for each in said)


CHANGED: Mapping[str, Callable[[Scenario], bool]] = {"flows share a node's link": _shares_fairly}
"""Changes of behavior of scenarios whose text is unchanged, each with a function that tests if a scenario is concerned.

The hash of these scenarios includes the change. One row is added for each default whose behavior changes, such as
`"links share a node's rate": lambda scenario: ...`.
"""

Plain: TypeAlias = dict[str, object]
_KEYS_OF_0_2 = Path(__file__).with_name("keys-0.2.txt")
_LeftOut: TypeAlias = Callable[[type[BaseModel], str], bool]
"""A function that returns whether a key of a pydantic model is left out of the scenario's hash at its default."""


def scenario_hash(scenario: Scenario) -> str:
    """Return the scenario's SHA-256, equal for scenarios that differ only in short forms and written-out defaults."""
    said = _said(scenario, _any)
    changed = _changes(scenario)
    return _hash(said | {"changed": changed} if changed else said)


def hashes(scenario: Scenario) -> Iterator[str]:
    """Yield the scenario's hash, then the hashes that earlier versions of netdfl gave to the same scenario."""
    yield scenario_hash(scenario)
    if not _changes(scenario):
        yield from {_hash(_in_turn(_said(scenario, left_out))): None for left_out in (_any, _since_0_2)}


def _in_turn(said: Plain) -> Plain:
    """Return the scenario's values without the key `sharing: fifo` of uplinks and downlinks.

    Versions of netdfl without this key computed the hash of these values.
    """
    plain = dict(said)
    if "links" in said:
        plain["links"] = {where: _without_fifo(entry) for where, entry in cast(dict[str, Plain], said["links"]).items()}
    if "events" in said:
        plain["events"] = [_without_fifo(entry) for entry in cast(list[Plain], said["events"])]
    return plain


def _without_fifo(entry: Plain) -> Plain:
    said = dict(entry)
    for key in NODE_KEYS:
        rule = said.get(key)
        if isinstance(rule, dict) and rule.get("sharing") == "fifo":
            said[key] = {name: value for name, value in rule.items() if name != "sharing"}
    return said


def is_of(scenario: Scenario, known: str) -> bool:
    """Return whether `known`, a hash or the beginning of one, is a hash of this scenario."""
    return bool(known) and any(each.startswith(known) for each in hashes(scenario))


def _changes(scenario: Scenario) -> list[str]:
    return [what for what, concerns in CHANGED.items() if concerns(scenario)]


def _hash(said: Plain) -> str:
    text = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256(text.encode()).hexdigest()


def _said(model: BaseModel, left_out: _LeftOut) -> Plain:
    """Return the pydantic model as plain values, without keys at their default for which `left_out` returns true."""
    said: Plain = _without_defaults(model, model.model_dump(mode="json", by_alias=True), left_out)
    if isinstance(model, Scenario):
        said |= {"events": [_event(entry, left_out) for entry in model.events]} if model.events else {}
    return said


def _without_defaults(value: Any, plain: Any, left_out: _LeftOut) -> Any:
    """Return `plain`, the JSON form of `value`, without settings at their default, at any depth.

    Only keys for which `left_out` returns true are removed.
    """
    if is_dataclass(value) and not isinstance(value, type) and isinstance(plain, dict):
        model: Any = record_model(cast(Function, type(value)))
        value = model.model_construct(**{name: getattr(value, name) for name in model.model_fields})
    if isinstance(value, BaseModel):
        return _keys_said(value, plain, left_out)
    if isinstance(value, Mapping) and isinstance(plain, dict) and list(value) == list(plain):
        return {key: _without_defaults(inner, plain[key], left_out) for key, inner in value.items()}
    if isinstance(value, list | tuple) and isinstance(plain, list):
        return [_without_defaults(*pair, left_out) for pair in zip(value, plain, strict=True)]
    return plain


def _keys_said(value: BaseModel, plain: Plain, left_out: _LeftOut) -> Plain:
    model, said = type(value), dict(plain)
    for name, field in model.model_fields.items():
        key = field.alias or name
        if key not in said:
            continue
        said[key] = _without_defaults(getattr(value, name), plain[key], left_out)
        if _may_go(model, name) and left_out(model, name) and said[key] == _default(model, name, left_out):
            del said[key]
    return said


def _may_go(model: type[BaseModel], name: str) -> bool:
    """Return whether the key `name` of a pydantic model may be left out of the scenario's hash at its default.

    It may not if it names the model (`kind`), is required, or is written out only where the user wrote it.
    """
    which = issubclass(model, Choice) and name == "kind"
    return not (which or model.model_fields[name].is_required() or model.__pydantic_decorators__.model_serializers)


@lru_cache(4096)
def _default(model: type[BaseModel], name: str, left_out: _LeftOut) -> object:
    """Return the default of the key `name` of a pydantic model, without nested values at their own defaults."""
    field = model.model_fields[name]
    value = _validated(field) if field.validate_default else field.get_default(call_default_factory=True)
    made: Any = model.model_construct
    alone = made(**{name: value}).model_dump(mode="json", by_alias=True, include={name}, warnings=False)
    return _without_defaults(value, alone[field.alias or name], left_out)


def _validated(field: FieldInfo) -> object:
    annotation: Any = field.annotation
    for mark in field.metadata:
        annotation = Annotated[annotation, mark]
    return TypeAdapter(annotation).validate_python(field.default)


def _event(entry: Plain, left_out: _LeftOut) -> Plain:
    """Return a scenario's event with the keys that the user wrote; defaults inside its link rules are removed."""
    return {key: _rule(key, value, left_out) if key in SLOTS else value for key, value in entry.items()}


def _rule(slot: str, plain: object, left_out: _LeftOut) -> object:
    choices = link_choices(slot)
    if not isinstance(plain, dict) or choices.kind_of(plain) is None:
        return plain
    model = choices.model(choices.kind_of(plain), "/")
    goes = {
        field.alias or name: _default(model, name, left_out)
        for name, field in model.model_fields.items()
        if _may_go(model, name) and left_out(model, name)
    }
    return {key: value for key, value in plain.items() if key not in goes or goes[key] != value}


def _any(model: type[BaseModel], name: str) -> bool:
    return True


def _since_0_2(model: type[BaseModel], name: str) -> bool:
    """Return whether the key `name` of a pydantic model is newer than version 0.2.0 of netdfl.

    All keys of a component that a user wrote count as old, except newer keys of its base class.
    """
    known = _keys_of_0_2()
    bases = (each for each in model.__mro__ if each.__name__ in known)
    return any(name in getattr(each, "model_fields", {}) and name not in known[each.__name__] for each in bases)


@cache
def _keys_of_0_2() -> Mapping[str, frozenset[str]]:
    """Return the keys of each pydantic model in version 0.2.0 of netdfl, where a scenario's hash included defaults."""
    lines = (line.split() for line in _KEYS_OF_0_2.read_text(encoding="utf-8").splitlines())
    return {name.rstrip(":"): frozenset(keys) for name, *keys in lines}
