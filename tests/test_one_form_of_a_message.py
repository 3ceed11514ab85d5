"""The same thing to many at one instant has one form, `Multicast`, and what became of it another, `Outcome`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from netdfl.core.types import Payload
from netdfl.testing.transports import KeptSink, data_message

PACKAGE = Path(__file__).resolve().parents[1] / "netdfl"
GONE = {
    "Copies", "ToAll", "Lanes", "Volley", "take_together", "BatchSink", "TakenApart", "Book", "FleetBook", "as_copies",
    "of_one_slot", "FanOut", "RowBatch", "are_alike", "as_message",
}  # fmt: skip
"""Other forms that a multicast or an outcome had on its way."""
FIELDS = 2, 7
"""Where the fields stand that tell messages of an edge apart: `message.id` has them."""


@cache
def texts() -> list[tuple[Path, str]]:
    return [(file, file.read_text(encoding="utf-8")) for file in sorted(PACKAGE.rglob("*.py"))]


def nodes(pattern: str) -> Iterator[tuple[Path, ast.AST]]:
    """Those of the modules in whose text the pattern is: in the others there can't be what is looked for."""
    for file, text in texts():
        if re.search(pattern, text):
            for node in ast.walk(ast.parse(text)):
                yield file, node


def test_nothing_on_the_way_of_a_message_has_another_form_of_it() -> None:
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    written = rf"\b(?:class|def)\s+(?:{'|'.join(GONE)})\b"
    defined = {(file.name, node.name) for file, node in nodes(written) if isinstance(node, kinds)}
    assert {each for each in defined if each[1] in GONE} == set()


ENGINE = "netdfl.links.engine"
DRIVERS = {
    "transport/simulated/fabric.py": "messages of a simulated fleet",
    "transport/emulated/transport.py": "messages above gRPC",
    "packets/forwarder.py": "packets",
}


def test_one_engine_drives_all_links() -> None:
    using = {
        file.relative_to(PACKAGE).as_posix()
        for file, node in nodes(r"\bLinkEngine\b")
        if isinstance(node, ast.ImportFrom) and node.module == ENGINE and "LinkEngine" in [a.name for a in node.names]
    }
    one_by_one = {"links/one_by_one.py"}  # the same engine, which a proof asks for other orders of an instant
    assert using == set(DRIVERS) | one_by_one
    taking = {
        file.relative_to(PACKAGE).as_posix()
        for file, node in nodes(r"\bstage\s*\.\s*(?:advance|enter)\b")
        if isinstance(node, ast.Attribute) and node.attr in ("advance", "enter") and ast.unparse(node.value) == "stage"
    }
    judging = {"links/sharing/stage.py"}  # it asks the link's own rules for the luck of a message whose turn has come
    assert taking == {"links/engine.py", "links/path.py", "packets/calibration/fit.py"} | judging, (
        "nobody else walks stages"
    )


def test_what_tells_messages_apart_is_their_id_and_not_a_slice_of_them() -> None:
    slices = [(file.name, node) for file, node in nodes(r"2\s*:\s*7") if isinstance(node, ast.Slice)]
    bounds = [
        (name, tuple(each.value for each in (node.lower, node.upper) if isinstance(each, ast.Constant)))
        for name, node in slices
    ]
    assert [name for name, each in bounds if each == FIELDS] == []


def test_a_transport_that_delivers_as_it_was_done_before_is_told_how_it_is_done() -> None:
    message = data_message((0, 1), 0, Payload())
    with pytest.raises(TypeError, match=r"`fates = sink\.deliver\(\[message\]\)`"):
        KeptSink().deliver(message)  # type: ignore[arg-type]
