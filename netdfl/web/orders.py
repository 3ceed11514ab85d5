"""Orders that a page may give where `netdfl serve --write` was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from netdfl.core.errors import InputError

MOST_BYTES = 1 << 16
"""The largest body of an order."""


@with_config(ConfigDict(extra="forbid", strict=True))
@dataclass(frozen=True, slots=True)
class LabelOrder:
    """Tags to add and to remove, and a note or a place in the archive where these change."""

    add: Sequence[str] = ()
    remove: Sequence[str] = ()
    note: str | None = None
    archived: bool | None = None


@with_config(ConfigDict(extra="forbid", strict=True))
@dataclass(frozen=True, slots=True)
class RepeatOrder:
    """Changed values by key, as text; and the modules whose execution was agreed to."""

    values: Mapping[str, str] = field(default_factory=dict)
    agreed: Sequence[str] = ()


_REPEAT: TypeAdapter[RepeatOrder] = TypeAdapter(RepeatOrder)
_LABELS: TypeAdapter[LabelOrder] = TypeAdapter(LabelOrder)


def read_label_order(body: bytes) -> LabelOrder:
    """Return the order that a page sent. Raises InputError if it is none."""
    try:
        return _LABELS.validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise InputError(f"this is no change of labels: {first['msg']}") from error


def read_repeat_order(body: bytes) -> RepeatOrder:
    """Return the order that a page sent. Raises InputError if it is none."""
    try:
        return _REPEAT.validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise InputError(f"this is no repetition: {first['msg']}") from error
