"""Orders and reports as bytes: the protobuf of protos/netdfl/v1/control.proto.

A protobuf message has the name and the fields of its dataclass. A mapping where it has a string is a JSON object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, cast, get_args

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from netdfl.core.control import Again, Order, Report
from netdfl.core.fates import MessageCounts
from netdfl.core.types import Kind
from netdfl.transport.v1 import control_pb2 as pb

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_PLAIN = {kind.__name__: kind for kind in (*get_args(Order), *get_args(Report), Again, MessageCounts)}
_PLACES = {each.message_type.name: each.name for kind in (pb.Order, pb.Report) for each in kind.DESCRIPTOR.fields}
"""By the name of an order or report, the field that holds it."""


def encode_order(order: Order) -> bytes:
    """The bytes of an order."""
    return _encode(order, pb.Order)


def decode_order(data: bytes) -> Order:
    """The order in `data`. Raises ValueError where there is none."""
    return cast(Order, _decode(pb.Order.FromString(data), "order", "an order"))


def encode_report(report: Report) -> bytes:
    """The bytes of a report."""
    return _encode(report, pb.Report)


def decode_report(data: bytes) -> Report:
    """The report in `data`. Raises ValueError where there is none."""
    return cast(Report, _decode(pb.Report.FromString(data), "report", "a report"))


def _encode(value: Order | Report, kind: type[Message]) -> bytes:
    """`value` in the place of `kind`'s oneof that is of its type."""
    data: bytes = kind(**{_PLACES[type(value).__name__]: _message(value)}).SerializeToString()
    return data


def _message(value: DataclassInstance) -> Message:
    """The protobuf message of a dataclass."""
    kind, places = _forms(type(value))
    return kind(**{name: _said(getattr(value, name), place) for name, place, _ in places})


@cache
def _forms(kind: type[DataclassInstance]) -> tuple[type[Message], Sequence[tuple[str, FieldDescriptor, str]]]:
    """The protobuf message of `kind`; each field's name, descriptor and annotation."""
    message: type[Message] = getattr(pb, kind.__name__)
    places = message.DESCRIPTOR.fields_by_name
    return message, [(each.name, places[each.name], str(each.type)) for each in fields(kind)]


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
    """The dataclass of a protobuf message. Raises ValueError where its text is none of what it must be."""
    kind = _PLAIN[message.DESCRIPTOR.name]
    return kind(**{name: _field(message, place, annotation) for name, place, annotation in _forms(kind)[1]})


def _field(message: Message, place: FieldDescriptor, annotation: str) -> object:
    if annotation.endswith("| None") and not message.HasField(place.name):
        return None
    return _read(getattr(message, place.name), annotation)


def _read(value: object, annotation: str) -> object:
    match value:
        case int() | float():
            return value
        case Message():
            return _value(value)
        case str() if annotation == "Kind":
            return Kind(value)
        case str() if annotation.startswith("Mapping["):
            return json.loads(value)
        case str():
            return value
        case bytes():
            return value
        case Mapping():
            return dict(value)
        case Sequence():
            return tuple(_read(each, annotation) for each in value)
    return value
