"""Outside of folders named `internals` no test touches a private name of the package or needs a file of these folders.

So whoever changes how a part works inside knows which tests may go with it, and that all others hold. A private name
is one of netdfl that begins with an underscore: of a module, a class or an object, also as text (`monkeypatch`,
`getattr`, a program that a test starts). Names of the tests' own classes and of libraries are no matter, nor are the
commands of `tests/soak`, which look into what they wear out, and what an earlier version made in `tests/fixtures`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Set
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PACKAGE = TESTS.parent / "netdfl"
INSIDE = "internals"
NO_TESTS = "fixtures", "soak"
EXCEPTIONS = {
    "explore/planted.py": "a bug is planted inside netdfl, and an exploration finds it from outside",
    "message_way.py": "every function that a message passes is named, leaf helpers too",
    "prove/planted.py": "a bug is planted inside netdfl, and a proof finds it from outside",
    "supervisor/stopping.py": "a process is stopped between two steps that have no name outside",
}
"""Files that may touch private names, and why."""
PRIVATE = re.compile(r"_[A-Za-z]\w*(?<!_)")
"""One underscore before it and none behind: `__name__` and `_repr_html_` are protocols of others."""
OF_TUPLES = {"_fields", "_field_defaults", "_replace", "_asdict", "_make"}


def is_private(name: str) -> bool:
    return PRIVATE.fullmatch(name) is not None and name not in OF_TUPLES


def defined_in(tree: ast.AST) -> Iterator[str]:
    """The names that functions, classes, attributes and variables are given."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                yield name


def words_of(text: str) -> Set[str]:
    """The words of a text that may be private names."""
    return {word for word in re.findall(r"\b_[A-Za-z]\w*", text) if is_private(word)}


@cache
def words_of_the_package() -> Mapping[Path, Set[str]]:
    return {file: words_of(file.read_text(encoding="utf-8")) for file in sorted(PACKAGE.rglob("*.py"))}


@cache
def private_names(file: Path) -> Set[str]:
    """Those that a module of netdfl defines."""
    return {name for name in defined_in(ast.parse(file.read_text(encoding="utf-8"))) if is_private(name)}


@cache
def is_of_netdfl(word: str) -> bool:
    """Whether it is a private name of netdfl; only modules that have the word are looked into."""
    return any(word in words and word in private_names(file) for file, words in words_of_the_package().items())


class PrivateUses(ast.NodeVisitor):
    """The private names among `private` that a text of Python touches, with their lines, in `found`."""

    def __init__(self, text: str, private: Set[str]) -> None:
        self.private, self.found = private, list[tuple[int, str]]()
        tree = ast.parse(text)
        self.libraries, self.own = set[str](), set[str]()
        derived = set[str]()
        for node in ast.walk(tree):
            for name in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
                (derived if is_of_the_package(node, name) else self.libraries).add(top(name.asname or name.name))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any(root(base) in derived for base in node.bases):
                derived.add(node.name)
                self._note(node, *defined_in(node))
            elif isinstance(node, ast.ClassDef):
                self.own.update(defined_in(node))
        self.visit(tree)

    def _note(self, node: ast.AST, *names: str) -> None:
        self.found += [(getattr(node, "lineno", 0), name) for name in names if name in self.private]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if top(node.module or "") == PACKAGE.name:
            self._note(node, *(node.module or "").split("."), *(each.name for each in node.names))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr not in self.own and not (isinstance(node.value, ast.Name) and node.value.id in self.libraries):
            self._note(node, node.attr)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Look into a name, a path of names, and a program that imports the package."""
        if not isinstance(node.value, str):
            return
        if re.fullmatch(r"[\w.:]+", node.value):
            self._note(node, *(name for name in re.split(r"[.:]", node.value) if name not in self.own))
        elif f"import {PACKAGE.name}" in node.value or f"from {PACKAGE.name}" in node.value:
            try:
                within = PrivateUses(node.value, self.private)
            except SyntaxError:
                return
            self._note(node, *(name for _, name in within.found))


def top(module: str) -> str:
    return module.partition(".")[0]


def is_of_the_package(node: ast.AST, name: ast.alias) -> bool:
    return top((node.module or "") if isinstance(node, ast.ImportFrom) else name.name) == PACKAGE.name


def root(node: ast.expr) -> str:
    """The variable that an expression begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def outside() -> Iterator[Path]:
    """Tests and their helpers outside of `internals`."""
    for file in sorted(TESTS.rglob("*.py")):
        parts = file.relative_to(TESTS).parts
        if INSIDE not in parts and (parts[0] not in NO_TESTS or file.name.startswith("test_")):
            yield file


def uses(file: Path) -> list[tuple[int, str]]:
    text = file.read_text(encoding="utf-8")
    words = words_of(text) & frozenset().union(*words_of_the_package().values())
    return [use for use in PrivateUses(text, words).found if is_of_netdfl(use[1])] if words else []


def test_no_test_outside_internals_touches_a_private_name_of_the_package() -> None:
    this = Path(__file__).resolve()
    found = {
        f"tests/{name}:{line}: {private}"
        for file in outside()
        if (name := file.relative_to(TESTS).as_posix()) not in EXCEPTIONS and file != this
        for line, private in uses(file)
    }
    assert found == set(), f"test it by a public way, or move it to a folder named {INSIDE} beside the file"
    assert [name for name in EXCEPTIONS if not uses(TESTS / name)] == [], "these need no exception"


def test_nothing_outside_internals_imports_from_there() -> None:
    """So that all else can be collected, and passes, where these folders are gone."""
    inside = {INSIDE, *(file.stem for file in TESTS.rglob(f"{INSIDE}/*.py"))}
    found = set()
    for file in outside():
        text = file.read_text(encoding="utf-8")
        if inside.isdisjoint(re.findall(r"\w+", "".join(re.findall(r"^\s*(?:from|import)\s.*\n", text, re.MULTILINE)))):
            continue
        for node in ast.walk(ast.parse(text)):
            names = {node.module or ""} if isinstance(node, ast.ImportFrom) else set[str]()
            names |= {each.name for each in node.names} if isinstance(node, ast.Import) else set()
            found |= {f"{file}: {name}" for name in names if name in inside or INSIDE in name.split(".")}
    assert found == set()


TOUCHES = {
    "from netdfl.node.heartbeats import _Beats": "_Beats",
    "import netdfl\nnetdfl.node._gather()": "_gather",
    "def test(node):\n    node.waits._gather = None": "_gather",
    "def test(monkeypatch, node):\n    monkeypatch.setattr(node, '_gather', None)": "_gather",
    "def test(monkeypatch):\n    monkeypatch.setattr('netdfl.node.runtime.Node._gather', None)": "_gather",
    "STEP = 'netdfl.node.runtime:Node._gather'": "_gather",
    "PROGRAM = '''\nfrom netdfl.node.heartbeats import _Beats\n'''": "_Beats",
    "from netdfl.node.runtime import Node\nclass Mine(Node):\n    def _gather(self): ...": "_gather",
    "from netdfl.node import runtime\nclass Mine(runtime.Node):\n    def run(self):\n        self._gather()": "_gather",
    "class Own:\n    _held = 1\n\ndef test(node):\n    node._gather()": "_gather",
}
TOUCHES_NOTHING = (
    "class Own:\n    def _gather(self): ...\n    def run(self):\n        self._gather()",
    "class Own:\n    def __init__(self):\n        self._gather = 1\n\ndef test(own):\n    assert own._gather",
    "import os\nos._gather()",
    "def _gather(): ...\n\ndef test():\n    _gather()",
    "def test(view):\n    view._replace(round=1)",
    "def test(run):\n    run._repr_html_()",
    "def test(node):\n    node._of_no_part_of_the_package()",
    "def test(node):\n    assert 'what _gather says' in node.text",
)


@pytest.mark.parametrize("text", TOUCHES, ids=range(len(TOUCHES)))
def test_a_private_name_is_found_however_it_is_touched(text: str) -> None:
    private = {"_gather", "_Beats"}
    assert [name for _, name in PrivateUses(text, private).found] == [TOUCHES[text]]


@pytest.mark.parametrize("text", TOUCHES_NOTHING, ids=range(len(TOUCHES_NOTHING)))
def test_names_of_the_tests_own_and_of_libraries_are_no_matter(text: str) -> None:
    assert PrivateUses(text, {"_gather", "_Beats", "_fields"}).found == []


def test_private_names_of_the_package_are_known() -> None:
    assert is_of_netdfl("_gather") or is_of_netdfl("_Beats")
    assert not any(map(is_of_netdfl, ("gather", "_", "__init__", "_replace")))
