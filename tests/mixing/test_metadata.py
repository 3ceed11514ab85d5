"""What a message says beside its arrays is of its type, or the message is refused, named by who sent it."""

from __future__ import annotations

from math import inf, nan

import pytest

from netdfl.core.errors import MalformedMessage
from netdfl.core.types import Kind, Message, Payload
from netdfl.mixing.payloads import natural, some_nodes


def said(**meta: object) -> Message:
    return Message(3, 0, Kind.DATA, 0, 7, 0, 0, Payload({}, meta))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, 0, -1, True, 1.0, "1", [1], nan, inf])
def test_a_whole_number_is_one_from_1(value: object) -> None:
    with pytest.raises(MalformedMessage, match=r"message 3->0 of round 7: expected a whole number 'version' from 1"):
        natural(said(version=value), "version")
    assert natural(said(version=1), "version") == 1


@pytest.mark.parametrize("value", [None, 5, "34", {"1": 2}, [1, "2"], [1.0], [True], ["3", 4]])
def test_nodes_are_a_list_of_whole_numbers(value: object) -> None:
    with pytest.raises(MalformedMessage, match=r"message 3->0 of round 7: expected nodes under 'ask'"):
        some_nodes(said(ask=value), "ask")


def test_nodes_that_are_not_named_are_none() -> None:
    assert some_nodes(said(), "ask") == some_nodes(said(ask=[]), "ask") == ()
    assert some_nodes(said(ask=[4, 2]), "ask") == some_nodes(said(ask=(4, 2)), "ask") == (4, 2)
