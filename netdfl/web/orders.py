"""Orders of a page, which are requests that change something; the server accepts them only with `--write`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from netdfl.core.errors import InputError

MOST_BYTES = 1 << 16
"""The largest body of an order, in bytes."""


@with_config(ConfigDict(extra="forbid", strict=True))
@dataclass(frozen=True, slots=True)
class LabelOrder:
    """A change of a run's labels: tags to add and to remove, a new note, and whether the run is archived.

    With None, the present `note` or `archived` stays.
    """

    add: Sequence[str] = ()
    remove: Sequence[str] = ()
    note: str | None = None
    archived: bool | None = None


@with_config(ConfigDict(extra="forbid", strict=True))
@dataclass(frozen=True, slots=True)
class RepeatOrder:
    """An order to repeat a run.

    It has the changed values by key, as text, and the modules whose execution the user agreed to.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    agreed: Sequence[str] = ()


_REPEAT: TypeAdapter[RepeatOrder] = TypeAdapter(RepeatOrder)
_LABELS: TypeAdapter[LabelOrder] = TypeAdapter(LabelOrder)


def read_label_order(body: bytes) -> LabelOrder:
    """Return the change of labels in a request's body. Raises InputError if there is none."""
    try:
        return _LABELS.validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise InputError(f"this is no change of labels: {first['msg']}") from error


def read_repeat_order(body: bytes) -> RepeatOrder:
    """Return the order to repeat a run in a request's body. Raises InputError if there is none."""
    try:
        return _REPEAT.validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise InputError(f"this is no repetition: {first['msg']}") from error
