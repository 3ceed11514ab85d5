"""The fields of a scenario that choose one component (algorithm, dataset, loss ...) from a table, or a user's own."""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType, ModuleType
from typing import TypeGuard

from pydantic import (
    BaseModel,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PydanticUserError,
    ValidationError,
    ValidationInfo,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

from netdfl.core.whose import own_place, said
from netdfl.scenario.model.contracts import CONTRACTS, check_signature, guarded, is_bare, prepared
from netdfl.scenario.model.fields import Choice
from netdfl.scenario.model.parts import Part, builder, model_of
from netdfl.scenario.model.plugins import find_own

Table = Mapping[str, object]

_ELSEWHERE = {
    "clients": "nodes",
    "num_clients": "nodes",
    "num_nodes": "nodes",
    "epochs": "rounds",
    "num_rounds": "rounds",
    "graph": "topology",
    "algo": "algorithm",
    "method": "algorithm",
    "learning_rate": "lr",
    "ratio": "fraction",
    "bandwidth": "rate",
    "delay": "latency",
    "accuracy": "test_accuracy",
    "complete": "full",
    "clique": "full",
    "fully_connected": "full",
    "all_to_all": "full",
}
"""Names that users of other tools may write for keys and parts, with netdfl's names for them."""


def nearest(word: object, known: list[str]) -> str:
    """Return the remedy for a misspelled word: the most similar known one, or the list of all."""
    found = similar(word, known)
    return f"did you mean {found!r}?" if found else "use one of " + ", ".join(sorted(known))


def similar(word: object, known: list[str]) -> str:
    """Return the known word that a misspelled one must mean; an empty text if none is near."""
    other = _ELSEWHERE.get(str(word), "")
    if other in known:
        return other
    plain = {_plain(each): each for each in sorted(known, reverse=True)}
    near = difflib.get_close_matches(_plain(str(word)), list(plain), n=1, cutoff=0.6)
    return plain[near[0]] if near else ""


def _plain(word: str) -> str:
    """Return a word without case and punctuation, so that `D-PSGD` matches `dpsgd`."""
    return re.sub(r"[\W_]", "", word).lower() or word


@dataclass(frozen=True)
class Choices:
    """A field of a scenario that chooses one component (part) of a kind, such as a loss model, by its name at `key`.

    Attributes:
        what: the kind of component (part), such as `loss`.
        base: the base class of the parts' pydantic models.
        table: returns the parts by name: functions, catalog entries with a `build`, or ready models.
        key: the key that names the part.
        default: the name that a mapping without `key` means.
        short: the (name, parameter) that a bare value means, such as `loss: 5%`.
        optional: whether the value may be `none`.
        also: the pattern of texts that are kept unchanged.
        own: the base of models for a user's own parts to which netdfl passes no arguments.
    """

    what: str
    table: Callable[[], Table]
    key: str = "kind"
    base: type[Part] = Part
    default: str | None = None
    short: tuple[str, str] | None = None
    optional: bool = False
    also: str | None = None
    own: type[Part] | None = None

    def passes(self, value: object) -> bool:
        """Return whether `value` names no component: it is `none`, where allowed, or a text that `also` matches."""
        if self.optional and (value is None or value == "none"):
            return True
        return self.also is not None and isinstance(value, str) and re.fullmatch(self.also, value) is not None

    def names(self) -> list[str]:
        """Return the names of the components to choose from, sorted."""
        return sorted(self.table())

    def normal(self, value: object) -> object:
        """Return the mapping that a short form such as `5%` stands for; any other value unchanged."""
        if value is None or isinstance(value, Mapping | list):
            return value
        if self.short and not (isinstance(value, str) and value in self.table()) and not is_own(value):
            kind, parameter = self.short
            return {self.key: kind, parameter: value}
        return {self.key: value}

    def kind_of(self, value: object) -> object:
        """Return the name of the component that a mapping in full form (`normal`) chooses, by default `default`."""
        return value.get(self.key, self.default) if isinstance(value, Mapping) else None

    def model(self, kind: object, directory: str = ".") -> type[BaseModel]:
        """Return the pydantic model of the component called `kind`. Raises PydanticCustomError for an unknown one."""
        if not isinstance(kind, str):
            expected = "a name, or package.module:callable" if self.open else "a name"
            raise refused(f"{kind!r} is no {self.what}", expected)
        table = self.table()
        if kind in table:
            return self._made(kind, table[kind])
        if is_own(kind) and not self.open:
            raise refused(f"a {self.what} can't be one's own, as {kind!r}", "", f"use one of {self._some()}")
        if is_own(kind):
            return self._own(kind, import_part(kind, self.what, directory))
        raise refused(f"unknown {self.what} {kind!r}", "", nearest(kind, list(table)))

    @property
    def open(self) -> bool:
        """Whether the component may be a user's own."""
        return self.what in CONTRACTS

    def _made(self, kind: str, entry: object) -> type[Choice]:
        if isinstance(entry, type) and issubclass(entry, Choice):
            return entry
        model = model_of(builder(entry), kind, self.key, self.base)
        model.entry = entry
        return model

    def _own(self, kind: str, entry: object) -> type[Choice]:
        function, contract = builder(entry), CONTRACTS[self.what]
        if not callable(function):
            raise refused(f"{self.what} {kind!r} is a {type(entry).__name__}", "a function or a class")
        name = kind.rpartition(":")[2]
        bare = is_bare(function, contract)
        base = self.own if bare and self.own is not None else self.base
        if wrong := check_signature(function, contract):
            remedy = f"write it as {contract.signature(name)}: context ends with `/`, parameters have types"
            raise refused(f"the {self.what} {kind!r} can't be used: {wrong}", "", remedy)
        try:
            model = model_of(guarded(prepared(function, self.what), kind, self.what), kind, self.key, base)
        except PydanticUserError as exc:
            what = f"the {self.what} {kind!r} has a parameter of a type that no scenario can write: {said(exc)}"
            raise refused(what.partition(". ")[0], "", "use numbers, text, lists, types of netdfl.core.units") from exc
        except Exception as exc:
            remedy = f"write it as {contract.signature(name)}, with a type for each parameter"
            raise refused(f"the {self.what} {kind!r} can't be used: {said(exc)}", "", remedy) from exc
        model.entry, model.own = entry, self.what
        return model

    def validate(self, value: object, info: ValidationInfo) -> object:
        """Validate the mapping or short form of this field. Raises ValidationError with paths relative to it."""
        if isinstance(value, Choice):
            return value
        if self.passes(value):
            return None if value == "none" else value
        value = self.normal(value)
        if not isinstance(value, Mapping):
            raise refused(f"{value!r} is no {self.what}", f"a name, or a mapping with {self.key!r}")
        kind = self.kind_of(value)
        if kind is None:
            raise self._at_key(
                refused(f"missing key {self.key!r}", "", f"say which {self.what}: {self._some()}"), value
            )
        try:
            model = self.model(kind, (info.context or {}).get("directory", "."))
        except PydanticCustomError as exc:
            raise self._at_key(exc, kind) from exc
        return model.model_validate(dict(value), context=info.context)

    def _some(self) -> str:
        return ", ".join(self.names())

    def _at_key(self, error: PydanticCustomError, value: object) -> ValidationError:
        return ValidationError.from_exception_data(
            self.what, [InitErrorDetails(type=error, loc=(self.key,), input=value)]
        )

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Build a pydantic schema that validates by `validate` and dumps the chosen model."""

        def dump(value: object, info: core_schema.SerializationInfo) -> object:
            if isinstance(value, Choice):
                return value.model_dump(mode=info.mode, by_alias=True)
            return "none" if value is None else value

        return core_schema.with_info_plain_validator_function(
            self.validate, serialization=core_schema.plain_serializer_function_ser_schema(dump, info_arg=True)
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return a JSON schema: a model of the table, its name, a short form, or a user's own component."""
        options = [self._json_schema(kind) for kind in self.names()]
        options.append({"enum": [*self.names(), *(["none", None] if self.optional else [])]})
        if self.open:
            own = {"type": "string", "pattern": r"^[\w.]+:[\w.]+$"}
            options.append(own)
            options.append({"type": "object", "required": [self.key], "properties": {self.key: own}})
        if self.short or self.also:
            options.append({"type": ["number", "string"]})
        return {"anyOf": options}

    def _json_schema(self, kind: str) -> JsonSchemaValue:
        """Return the JSON schema of the component `kind`; the key naming it is required unless it is the default."""
        schema = inlined(self.model(kind).model_json_schema(by_alias=True))
        if kind != self.default and self.key in schema["properties"] and self.key not in schema.get("required", []):
            schema["required"] = [*schema.get("required", []), self.key]
        return schema


def listed(module: str, name: str) -> Callable[[], Table]:
    """Return a function that imports `module` and returns its table of components called `name`."""
    return lambda: getattr(importlib.import_module(module), name)


def inlined(schema: JsonSchemaValue, known: Mapping[str, JsonSchemaValue] = MappingProxyType({})) -> JsonSchemaValue:
    """Return a JSON schema with references replaced by their definitions and without generated titles."""
    known = {**known, **schema.get("$defs", {})}
    target = known[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else {}

    def inner(value: object) -> object:
        if isinstance(value, list):
            return [inner(item) for item in value]
        return inlined(value, known) if isinstance(value, dict) else value

    return {
        key: inner(value)
        for key, value in {**target, **schema}.items()
        if key not in ("$ref", "$defs") and not (key == "title" and isinstance(value, str))
    }


def refused(what: str, expected: str = "", remedy: str = "") -> PydanticCustomError:
    """Create a validation error, which the loader converts to a `Problem` with these texts."""
    return PydanticCustomError("refused", "{what}", {"what": what, "expected": expected, "remedy": remedy})


def is_own(kind: object) -> TypeGuard[str]:
    """Return whether a value names a component that a user wrote, as `package.module:callable`."""
    if not isinstance(kind, str):
        return False
    module, colon, attribute = kind.partition(":")
    return bool(colon) and all(word.isidentifier() for word in (*module.split("."), *attribute.split(".")))


def _lacks(exc: BaseException, path: str) -> str:
    """Return the names similar to a missing attribute if the module of `path` was found; else an empty text."""
    module, _, name = path.partition(":")
    found = getattr(exc, "obj", None)
    if not isinstance(exc, AttributeError) or not isinstance(found, ModuleType) or name.partition(".")[0] != exc.name:
        return ""
    if not f".{found.__name__}".endswith(f".{module}"):
        return ""
    own = [
        each
        for each, value in vars(found).items()
        if getattr(value, "__module__", "") == found.__name__ or hasattr(value, "build")
    ]
    return nearest(name, own) if own else "define it there"


def import_part(path: str, what: str, directory: str) -> object:
    """Import `package.module:callable`: a function, a class, or an entry with a `build`.

    Raises PydanticCustomError that names the failed import and its cause.
    """
    try:
        return find_own(path, directory)
    except (Exception, SystemExit) as exc:
        if path.startswith("torchvision:"):
            raise refused(f"{what} {path!r}: {said(exc)}") from exc
        if lacks := _lacks(exc, path):
            raise refused(f"{what} {path!r}: {said(exc)}", "", lacks) from exc
        where = f" ({place})" if (place := own_place(exc)) else ""
        missing = isinstance(exc, ModuleNotFoundError) and not where
        remedy = f"put the module beside the scenario, in {directory}, or install it" if missing else ""
        told = f"{type(exc).__name__}: {said(exc)}{where}"
        raise refused(f"{what} {path!r} can't be imported: {told}", "", remedy) from exc
