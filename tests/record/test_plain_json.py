"""JSON that every reader takes: what is written quickly is what is copied first."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdfl.record.plain_json import dump_by_line, dump_json, plain


class Colour(StrEnum):
    RED = "red"


class Pair(NamedTuple):
    one: int
    other: float


@dataclass(frozen=True, slots=True)
class Point:
    at: tuple[int, ...]
    name: str | None
    more: object


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(Colour.RED)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.dictionaries(st.text(), inner).map(MappingProxyType)
        | st.builds(Pair, st.integers(), st.floats())
        | st.builds(Point, st.tuples(st.integers()), st.none() | st.text(), inner)
    ),
)


@given(values)
def test_what_is_written_quickly_is_what_is_copied_first(value: object) -> None:
    copied = json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    assert dump_json(value) == copied


@given(st.dictionaries(st.text(), values))
def test_a_line_for_each_item_says_the_same(value: dict[str, object]) -> None:
    assert json.loads(dump_by_line(value)) == json.loads(dump_json(value))


def test_each_item_of_a_list_has_a_line() -> None:
    text = dump_by_line({"at": math.nan, "points": [Point((1,), None, {}), Point((2,), "b", [math.inf])]})
    assert text == (
        '{"at":null,\n"points":[\n{"at":[1],"name":null,"more":{}},\n{"at":[2],"name":"b","more":[null]}]}\n'
    )


def test_a_set_is_a_list() -> None:
    assert dump_json(frozenset({3})) == "[3]"


@pytest.mark.parametrize("value", [b"bytes", object(), [1j]])
def test_what_json_has_not_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        dump_json(value)
