"""Modules on a message's way, of waits, of compressed references and of virtual time say why they are built so.

Such a module begins with what it is for, then a paragraph that begins with `Relies on:`, then one with `Why:`. Where
states change there is a picture.
"""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.docs.test_map_of_a_message import ROOT, the_map

NETDFL = ROOT / "netdfl"
ON_THE_WAY = {file for part in the_map() for entry in part for file in entry.files}
CARRYING = {"links/edge_state.py", "links/channel.py", "transport/grpc/chunks.py", "transport/grpc/connections.py"}
WAITS = {f"node/{name}.py" for name in ("delivery", "deadline", "asking", "requests", "pause", "heartbeats")}
REFERENCES = {"mixing/compressed/references.py", "mixing/compressed/copies.py", "node/state_transfer.py"}
VIRTUAL = {f"worlds/simulated/{name}.py" for name in ("world", "loop", "node", "training", "compute", "ledger")}
MODULES = sorted(ON_THE_WAY | CARRYING | WAITS | REFERENCES | VIRTUAL)
STATES = {
    "links/engine.py",
    "mixing/compressed/copies.py",
    "mixing/compressed/references.py",
    "node/asking.py",
    "node/delivery.py",
    "node/heartbeats.py",
    "node/mailbox.py",
    "node/state_transfer.py",
    "node/waits.py",
    "transport/emulated/receipts.py",
    "transport/emulated/transport.py",
    "transport/grpc/receiving.py",
    "transport/grpc/sending.py",
    "transport/grpc/stream.py",
    "transport/shared_memory/base.py",
    "transport/shared_memory/buffers.py",
    "transport/shared_memory/memory.py",
    "transport/shared_memory/pool.py",
    "transport/simulated/fabric.py",
    "transport/wire.py",
    "worlds/simulated/loop.py",
    "worlds/simulated/training.py",
}
"""Where messages, waits, leases, references or time go from state to state, or bytes have a layout."""


@cache
def paragraphs(file: str) -> list[str]:
    text = ast.get_docstring(ast.parse((NETDFL / file).read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")


def words(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize("file", MODULES)
def test_a_module_says_what_it_is_for_what_it_relies_on_and_why_it_is_built_so(file: str) -> None:
    purpose, relies, why = (
        [each for each in paragraphs(file) if not each.startswith(("Relies on: ", "Why: "))],
        [each for each in paragraphs(file) if each.startswith("Relies on: ")],
        [each for each in paragraphs(file) if each.startswith("Why: ")],
    )
    assert (len(relies), len(why)) == (1, 1)
    assert paragraphs(file) == [*purpose, *relies, *why], "they end the docstring, in this order"
    assert purpose
    assert words(relies[0]) >= 8
    assert words(why[0]) >= 25


def test_no_two_modules_give_the_same_reason() -> None:
    ends = [paragraph for file in MODULES for paragraph in paragraphs(file)[-2:]]
    assert len(set(ends)) == len(ends)


def is_picture(paragraph: str) -> bool:
    indented = all(line.startswith("    ") for line in paragraph.splitlines())
    return indented and re.search(r"▶|->|─>|<-|\|", paragraph) is not None


def test_there_is_a_picture_where_states_change() -> None:
    assert [file for file in sorted(STATES) if not any(map(is_picture, paragraphs(file)))] == []
    assert set(MODULES) >= STATES


@pytest.mark.parametrize("file", MODULES)
def test_the_files_that_a_docstring_names_are_there(file: str) -> None:
    named = re.findall(r"`([\w/]+\.(?:py|md))`", "\n".join(paragraphs(file)))
    beside = (NETDFL / file).parent
    assert [name for name in named if not any((top / name).exists() for top in (beside, NETDFL, ROOT))] == []
