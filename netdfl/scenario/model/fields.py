"""The base of all pydantic models in the scenario schema, and the types of values with units."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    create_model,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticSerializationUnexpectedValue

from netdfl.core.clock import NS_PER_S
from netdfl.core.units import (
    format_time,
    parse_probability,
    parse_rate_bps,
    parse_size_bytes,
    parse_time_ns,
)
from netdfl.scenario.model.plugins import origins

Function: TypeAlias = Callable[..., Any]
"""A function that builds a component, from a table of netdfl's or a user's own; its keyword parameters are keys of the
scenario."""
Mark: TypeAlias = BeforeValidator | PlainValidator | PlainSerializer | WithJsonSchema
Definition: TypeAlias = tuple[object, object]
"""A field of a pydantic model that is created at run time: its type, and pydantic's `Field`."""
T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)


class Strict(BaseModel):
    """A mapping in a scenario: immutable, with no unknown keys and no type coercion."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        populate_by_name=False,
        protected_namespaces=(),
        allow_inf_nan=False,
    )


class Choice(Strict):
    """A mapping in which one key (`kind`, `name`, `model`, `dist`) decides the other keys."""

    key: ClassVar[str] = "kind"
    kind: str


def by_kind(*models: type[Choice]) -> dict[str, type[Choice]]:
    """Return the pydantic models in a dictionary by their `kind`."""
    return {model.model_fields["kind"].default: model for model in models}


def make_model(name: str, base: type[Model], help: str | None, fields: Mapping[str, Definition]) -> type[Model]:
    """Create a pydantic model with the fields of `base` and the additional `fields`; `help` is its docstring."""
    definitions: dict[str, Any] = dict(fields)
    return create_model(name, __base__=base, __doc__=help, __module__=base.__module__, **definitions)


def _number(value: float | int, unit: str) -> str:
    return f"{Decimal(repr(value)).normalize():f}{unit}"


def quantity(parse: Callable[[object], T], write: Callable[[T], object], schema: JsonSchemaValue) -> tuple[Mark, ...]:
    """Return the pydantic annotations of a value with a unit, which `parse` reads and `write` writes."""

    def written(value: T) -> object:
        if not isinstance(value, int | float):  # another option of a union
            raise PydanticSerializationUnexpectedValue(f"{value!r} is no number")
        return write(value)

    return (BeforeValidator(parse), PlainSerializer(written, when_used="json"), WithJsonSchema(schema))


def _unit_schema(example: str) -> JsonSchemaValue:
    return {"type": "string", "pattern": r"^\s*[+-]?[0-9.]", "examples": [example]}


_PROBABILITY_SCHEMA = {
    "anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "string", "pattern": r"^[0-9.]+\s*%?$"}]
}

QUANTITIES: dict[str, tuple[Mark, ...]] = {
    "time": quantity(parse_time_ns, format_time, _unit_schema("20ms")),
    "rate": quantity(parse_rate_bps, lambda bps: _number(bps, "bit"), _unit_schema("10Mbit")),
    "size": quantity(parse_size_bytes, lambda nbytes: f"{nbytes}B", _unit_schema("256KiB")),
    "probability": quantity(parse_probability, float, _PROBABILITY_SCHEMA),
}
"""The pydantic annotations for each `Quantity` (time, rate, ...) of `core.units`, by its name."""


def plain(parse: Callable[[object], T], write: Callable[[T], object], schema: JsonSchemaValue) -> tuple[Mark, ...]:
    """Return the pydantic annotations of a value that may have several forms, such as a time or a word."""
    return (PlainValidator(parse), PlainSerializer(write, when_used="json"), WithJsonSchema(schema))


def parse_time_or(value: object, words: str, without_end: str) -> int:
    """Parse a time above 0, for a key that also permits `words`.

    Raises ValueError that lists the permitted `words`, or, for a time of 0 or less, says `without_end`.
    """
    try:
        time_ns = parse_time_ns(value)
    except ValueError as exc:
        raise ValueError(f"{exc}, or {words}") from exc
    if time_ns <= 0:
        raise ValueError(without_end)
    return time_ns


def written_time(value: int | str | None) -> str:
    """Format a time, or the word in its place; None becomes `none`."""
    return format_time(value) if isinstance(value, int) else value or "none"


def parse_share(value: object) -> float:
    """Parse a share from 0 to 1, or a percentage such as `90%`. Raises ValueError."""
    try:
        return parse_probability(value)
    except ValueError:
        remedy = "write 0 to 1, or a percentage like 90%"
        if isinstance(value, int | float) and 1 < value <= 100:
            remedy = f'write {value / 100:g}, or "{value:g}%"'
        raise ValueError(f"{value!r} is no share; {remedy}") from None


Share: TypeAlias = Annotated[float, *quantity(parse_share, float, _PROBABILITY_SCHEMA)]

Time: TypeAlias = Annotated[int, *QUANTITIES["time"]]


def _number_or(parse: Callable[[object], float], unit: float, example: str) -> tuple[Mark, ...]:
    """Return the pydantic annotations of a number, or of a text that `parse` reads and that is divided by `unit`."""

    def read(value: object) -> object:
        return parse(value) / unit if isinstance(value, str) else value

    return (BeforeValidator(read), WithJsonSchema({"anyOf": [{"type": "number"}, _unit_schema(example)]}))


Bytes: TypeAlias = Annotated[float, *_number_or(parse_size_bytes, 1, "256KiB")]
"""A number of bytes, or a size with its unit."""
Seconds: TypeAlias = Annotated[float, *_number_or(parse_time_ns, NS_PER_S, "20ms")]
"""A number of seconds, or a time with its unit."""


def _not_negative(time_ns: int) -> int:
    if time_ns < 0:
        raise ValueError(f"a time of {format_time(time_ns)} is negative; write 0s or more")
    return time_ns


Duration: TypeAlias = Annotated[Time, AfterValidator(_not_negative)]


def _existing(what: str, is_there: Callable[[Path], bool]) -> AfterValidator:
    def check(value: str, info: ValidationInfo) -> str:
        folders = origins((info.context or {}).get("directory", "."))
        found = next((folder / value for folder in folders if is_there(folder / value)), None)
        if found is None and any((folder / value).exists() for folder in folders):
            raise ValueError(f"{what} {value!r} is {'a folder' if what == 'file' else 'no folder'}; name a {what}")
        if found is None:
            lies = "relative paths are relative to the file that they stand in"
            raise ValueError(f"{what} {value!r} not found in {folders[-1]}; {lies}")
        return str(found.resolve())

    return AfterValidator(check)


InputFile: TypeAlias = Annotated[str, _existing("file", Path.is_file)]
"""A file named by the scenario; relative to the folder of the scenario or of its study, absolute once loaded."""
InputFolder: TypeAlias = Annotated[str, _existing("folder", Path.is_dir)]
"""A folder named by the scenario; relative to the folder of the scenario or of its study, absolute once loaded."""

_NODES = re.compile(r"^\s*(\d+)\s*(?:\.\.\s*(\d+)\s*)?$")


def parse_nodes(value: object) -> list[int]:
    """Parse node numbers: `3`, `0..7` (both ends included), or a list of these. Raises ValueError."""
    if isinstance(value, list):
        return [node for item in value for node in parse_nodes(item)]
    match = _NODES.match(str(value)) if isinstance(value, int | str) and not isinstance(value, bool) else None
    if match is None:
        raise ValueError(f"{value!r} names no nodes; write a number, a range like 0..7, or a list of these")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first or last - first > 10**6:
        raise ValueError(f"the range {value} has no sense; write the smaller node first, like 0..7")
    return list(range(first, last + 1))
