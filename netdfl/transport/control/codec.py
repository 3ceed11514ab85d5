"""The codec of the control plane: orders and reports as protobuf of protos/netdfl/v1/control.proto.

A protobuf message has the name and the fields of its dataclass, so one pair of functions serves all of them. Where a
dataclass has a mapping and the protobuf message a string, the string is a JSON object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, cast, get_args

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from netdfl.core.control import Again, CoreRate, Order, Report
from netdfl.core.fates import MessageCounts
from netdfl.core.types import Kind
from netdfl.transport.v1 import control_pb2 as pb

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_PLAIN = {kind.__name__: kind for kind in (*get_args(Order), *get_args(Report), Again, CoreRate, MessageCounts)}
_PLACES = {each.message_type.name: each.name for kind in (pb.Order, pb.Report) for each in kind.DESCRIPTOR.fields}
"""For each kind of order or report, by its name: the field of `Order` or `Report` (protobuf) that holds it."""
_NUMBERS = frozenset(("int", "float", "bool", "NodeId"))


def encode(value: Order | Report) -> bytes:
    """Return an order or a report as the bytes of its protobuf message."""
    kind = pb.Order if isinstance(value, Order) else pb.Report
    data: bytes = kind(**{_PLACES[type(value).__name__]: _message(value)}).SerializeToString()
    return data


def decode_order(data: bytes) -> Order:
    """Return the order in `data`. Raises ValueError if there is none."""
    return cast(Order, _decode(pb.Order.FromString(data), "order", "an order"))


def decode_report(data: bytes) -> Report:
    """Return the report in `data`. Raises ValueError if there is none."""
    return cast(Report, _decode(pb.Report.FromString(data), "report", "a report"))


def _message(value: DataclassInstance) -> Message:
    """Return the protobuf message with the same name and fields as the dataclass of `value`."""
    kind, forms = _forms(type(value))
    return kind(
        **{
            form.name: getattr(value, form.name) if form.is_number else _said(getattr(value, form.name), form.place)
            for form in forms
        }
    )


class _Form(NamedTuple):
    """A field of a dataclass, and how to convert it: the protobuf field `place` that matches it, and its type."""

    name: str
    place: FieldDescriptor
    annotation: str
    is_optional: bool
    is_number: bool

    @classmethod
    def of(cls, name: str, place: FieldDescriptor, annotation: str) -> _Form:
        """Describe the dataclass field `name` with this type annotation; `place` is the protobuf field for it."""
        is_optional = annotation.endswith("| None")
        return cls(name, place, annotation, is_optional, annotation in _NUMBERS and not is_optional)


@cache
def _forms(kind: type[DataclassInstance]) -> tuple[type[Message], Sequence[_Form]]:
    """Return the protobuf class that matches the dataclass `kind`, and for each field how to convert it."""
    message: type[Message] = getattr(pb, kind.__name__)
    places = message.DESCRIPTOR.fields_by_name
    return message, [_Form.of(each.name, places[each.name], str(each.type)) for each in fields(kind)]


def _said(value: object, place: FieldDescriptor) -> object:
    if isinstance(value, str | bytes | float | None):
        return value
    if isinstance(value, tuple):
        return [_said(each, place) for each in value]
    if isinstance(value, Mapping) and place.type == FieldDescriptor.TYPE_STRING:
        return json.dumps(dict(value))
    return _message(value) if is_dataclass(value) and not isinstance(value, type) else value


def _decode(message: Message, oneof: str, what: str) -> object:
    place = message.WhichOneof(oneof)
    if place is None:
        raise ValueError(f"{what} of no kind that is known here")
    return _value(getattr(message, place))


def _value(message: Message) -> object:
    """Convert a protobuf message to its dataclass. Raises ValueError if a text is not valid for its field."""
    kind = _PLAIN[message.DESCRIPTOR.name]
    return kind(
        **{
            form.name: getattr(message, form.name) if form.is_number else _field(message, form)
            for form in _forms(kind)[1]
        }
    )


def _field(message: Message, form: _Form) -> object:
    if form.is_optional and not message.HasField(form.name):
        return None
    return _read(getattr(message, form.name), form.annotation)


def _read(value: object, annotation: str) -> object:
    match value:
        case Message():
            return _value(value)
        case str() if annotation == "Kind":
            return Kind(value)
        case str() if annotation.startswith("Mapping["):
            return json.loads(value)
        case str() | bytes():
            return value
        case Mapping():
            return dict(value)
        case Sequence():
            return tuple(_read(each, annotation) for each in value)
    return value
