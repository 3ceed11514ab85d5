"""Orders that a page may give where `netdfl serve --write` was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


_LABELS: TypeAdapter[LabelOrder] = TypeAdapter(LabelOrder)


def read_label_order(body: bytes) -> LabelOrder:
    """Return the order that a page sent. Raises InputError if it is none."""
    try:
        return _LABELS.validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise InputError(f"this is no change of labels: {first['msg']}") from error
