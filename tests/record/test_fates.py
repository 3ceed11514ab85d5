"""A fate is a value within a process, and text where it is stored or sent: texts are made and read in one place."""

from __future__ import annotations

import ast
import copy
import pickle
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import netdfl
from netdfl.core.fates import FATE_TEXTS, Fate, FateClass, FateKind, FateReason

ROOT = Path(netdfl.__file__).parent
KINDS = [kind.value for kind in FateKind]
STORE_AND_WIRE = {
    "core/fates.py",  # the home of the texts
    "transport/base.py",  # what another node may say
    "record/sampling.py",  # which of the store's rows are written
    "explore/rows.py",  # the store's rows in memory, as predicates of users read them
}
IN_WORDS = {
    "transport/control/attendance.py",  # why a node is turned away
    "node/state_transfer.py",  # why no model came
}
"""Where a reason is a sentence, or is no message's."""
SURGERY = ("startswith", "endswith", "removeprefix", "removesuffix", "partition", "split")
FATES, REASONS = ("fate", "fates", "closed_as"), ("reason", "dropped")
OF_MESSAGES = tuple("core/errors diagnosis explore links node packets record replaying transport worlds".split())


@given(st.sampled_from(list(FateKind)), st.text(max_size=9))
def test_a_fate_is_read_as_it_was_written_whatever_its_reason(kind: FateKind, reason: str) -> None:
    fate = Fate(kind, FateReason(reason))
    assert Fate.read(fate.text) == fate
    assert Fate.read(fate.text).counts_as is Fate(kind).counts_as
    assert (str(fate), FATE_TEXTS[fate]) == (fate.text, fate.text)
    assert pickle.loads(pickle.dumps(fate)) == copy.deepcopy(fate) == fate


@pytest.mark.parametrize(
    ("text", "fate"),
    [
        ("delivered", Fate.DELIVERED),
        ("in_flight", Fate.IN_FLIGHT),
        ("failed:gone", Fate.GONE),
        ("dropped:of a rule that is to come", Fate.dropped(FateReason("of a rule that is to come"))),
    ],
)
def test_the_texts_are_those_of_the_record(text: str, fate: Fate) -> None:
    assert (Fate.read(text), fate.text) == (fate, text)


@pytest.mark.parametrize("text", ["", "Delivered", "lost", "delivered "])
def test_what_is_of_no_kind_is_no_fate(text: str) -> None:
    assert not Fate.is_text(text)
    with pytest.raises(ValueError, match="is not a valid FateKind"):
        Fate.read(text)


@pytest.mark.parametrize("text", ["dropped:a b", "dropped:", "dropped:" + "x" * 65, "dropped:a:b", "dropped:\n"])
def test_no_other_node_may_give_a_reason_that_is_no_word(text: str) -> None:
    assert not Fate.is_text(text)
    assert Fate.read(text).counts_as is FateClass.LOST  # what is stored is kept


@cache
def texts() -> dict[str, str]:
    found = sorted(path for path in ROOT.rglob("*.py") if not path.name.endswith("_pb2.py"))
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in found}


def modules(pattern: str) -> Iterator[tuple[str, ast.Module]]:
    """Those in whose text the pattern is: in the others there can't be what is looked for."""
    return ((name, ast.parse(text)) for name, text in texts().items() if re.search(pattern, text))


def annotated(tree: ast.Module) -> list[tuple[int, str, ast.expr]]:
    """Where a name has an annotation: the line, the name, the annotation."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation is not None:
            found.append((node.lineno, node.arg, node.annotation))
        elif isinstance(node, ast.AnnAssign):
            found.append((node.lineno, ast.unparse(node.target).rpartition(".")[2].lstrip("_"), node.annotation))
    return found


def test_no_fate_is_annotated_as_text_outside_the_store_and_the_wire() -> None:
    wrong = [
        f"{name}:{line} {what}: {kind}"
        for name, tree in modules(rf"\b_*(?:{'|'.join(FATES + REASONS)})\s*:")
        if name not in STORE_AND_WIRE | IN_WORDS
        for line, what, annotation in annotated(tree)
        if what in FATES or (what in REASONS and name.startswith(OF_MESSAGES))
        if re.search(r"\bstr\b", kind := ast.unparse(annotation))
    ]
    assert not wrong


def test_no_text_of_a_fate_is_made_or_taken_apart_outside_its_home() -> None:
    """No constant is one with a reason, and none is asked for how it begins or ends."""
    wrong = []
    taken_apart = rf"\b(?:fate|reason)\s*\.\s*(?:{'|'.join(SURGERY)})\b"
    for name, tree in modules(rf"\b(?:{'|'.join(KINDS)}):|{taken_apart}"):
        for node in ast.walk(tree):
            if name != "core/fates.py" and isinstance(node, ast.Constant) and isinstance(node.value, str):
                kind, colon, reason = node.value.partition(":")
                if colon and kind in KINDS and " " not in reason:
                    wrong.append(f"{name}:{node.lineno} {node.value!r}")
            elif isinstance(node, ast.Attribute) and node.attr in (
                "startswith",
                "endswith",
                "removeprefix",
                "partition",
            ):
                if ast.unparse(node.value).rpartition(".")[2] in ("fate", "reason"):
                    wrong.append(f"{name}:{node.lineno} {ast.unparse(node)}")
    assert not wrong
