"""Which tests are nearest to a place in the code: those that run it and little else, of its package's folder first.

Every block of statements (a body, a branch, what follows a branch) tells when it is entered, by a call that an import
hook puts there; nothing on disk changes. Each test file is run so once, in a fork of its own, and what each of its
tests entered is kept until the file or what lies beside it changes. What fails or takes long is not asked later.
A block is named by what its function says, so that no record says more of code than is so: what has changed since, or
was not there, is looked up by its function's name, or else by its module's.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from itertools import product
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, cast

import pytest

LONG_S = 5.0
"""A test that takes longer is not asked."""
QUICK_S = 0.1
BUDGET_S = 60.0
"""All that are asked about one place take at most this long."""
MOST_FILES = 40
"""Test files that are asked about one place: each has its imports."""
INTERNALS = "internals"
"""Folders of tests below a package's own, of how it works inside: they have the package's helpers."""
ENTERED = "__entered__"
COMPOUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.With, ast.AsyncWith, ast.Match)


@dataclass(frozen=True)
class Record:
    """What the tests of one file entered: of each test its seconds, and the blocks as places in `blocks`."""

    file: str
    blocks: list[str]
    tests: dict[str, tuple[float, list[int]]]


Change = Callable[[str, bytes], bytes | CodeType]


class Blocks(ast.NodeTransformer):
    """Gives each block of a module a name, `module:function@what the function says+line`, and a call that tells it."""

    def __init__(self, module: str, source: bytes) -> None:
        """Read the source of `module`."""
        self.module, self.source = module, source
        self.lines: dict[int, str] = {}
        """The block of each line that lies in a function."""
        self._names: list[str] = []
        self._function, self._first = "", 0
        self.tree = self.visit(ast.parse(source))
        ast.fix_missing_locations(self.tree)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """What a class's body itself says is no block."""
        self._names.append(node.name)
        node.body = [self.visit(statement) for statement in node.body]
        self._names.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        """A function's body is a block, and so is each body in it."""
        kept = self._function, self._first
        self._names.append(node.name)
        segment = b"".join(self.source.splitlines(keepends=True)[node.lineno - 1 : node.end_lineno])
        self._function = f"{self.module}:{'.'.join(self._names)}@{sha256(segment).hexdigest()[:8]}"
        self._first = node.lineno
        start = 1 if ast.get_docstring(node, clean=False) is not None else 0
        node.body = node.body[:start] + self._body(node.body[start:])
        self._names.pop()
        self._function, self._first = kept
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Go into bodies of statements alone."""
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, self._body(value) if self._function else [self.visit(each) for each in value])
            elif isinstance(value, list) and value and isinstance(value[0], ast.excepthandler | ast.match_case):
                for each in value:
                    self.visit(each)
        return node

    def _body(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        told: list[ast.stmt] = []
        block, new = "", True
        for statement in body:
            if new:
                block = f"{self._function}+{statement.lineno - self._first}"
                call = ast.Expr(ast.Call(ast.Name(ENTERED, ast.Load()), [ast.Constant(block)], []))
                told.append(ast.copy_location(call, statement))
            for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
                self.lines[line] = block
            told.append(self.visit(statement))
            new = isinstance(statement, COMPOUND)
        return told


class Planted(MetaPathFinder):
    """An import hook: modules come from a source that differs from their file's."""

    def __init__(self, files: dict[str, Path], change: Change, given: dict[str, object] | None = None) -> None:
        """`files`, by their modules' names, are compiled from what `change` makes of them; `given` are in scope."""
        self.files, self.change, self.given = files, change, given or {}

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find a module that is changed."""
        if fullname not in self.files:
            return None
        loader = _Loader(fullname, str(self.files[fullname]), self)
        return spec_from_file_location(fullname, self.files[fullname], loader=loader)

    def hook(self) -> None:
        """Stand before all others."""
        sys.meta_path.insert(0, self)


def _compiled(source: bytes | ast.Module, path: str) -> CodeType:
    return cast(CodeType, compile(source, path, "exec", dont_inherit=True))


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, planted: Planted) -> None:
        super().__init__(fullname, path)
        self.planted = planted

    def get_code(self, fullname: str) -> CodeType:
        """Compile what it is changed to; no cache is read or written."""
        changed = self.planted.change(fullname, Path(self.path).read_bytes())
        return changed if isinstance(changed, CodeType) else _compiled(changed, self.path)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(self.planted.given)
        super().exec_module(module)


@dataclass
class Recorder:
    """A plugin of pytest that takes down what each test entered.

    What is entered while modules are imported, and in fixtures, is each later test's too: it may look at the outcome.
    """

    entered: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)
    tests: dict[str, tuple[float, set[str]]] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def _taken(self) -> set[str]:
        taken = set(self.entered)
        self.entered.clear()
        return taken

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """Fixtures are shared."""
        self.shared |= self._taken()
        yield
        self.shared |= self._taken()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Take down the test's own."""
        yield
        self.tests[item.nodeid] = 0.0, self._taken() | self.shared

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add its time up."""
        self.seconds[report.nodeid] += report.duration
        if not report.passed:
            self.failed.add(report.nodeid)

    def record(self, file: str) -> dict[str, Any]:
        """What is kept of the file."""
        names = sorted(set().union(*(blocks for _, blocks in self.tests.values())) if self.tests else ())
        places = {name: place for place, name in enumerate(names)}
        tests = {
            test: (round(self.seconds[test], 4), sorted(places[name] for name in blocks))
            for test, (_, blocks) in self.tests.items()
            if test not in self.failed and self.seconds[test] < LONG_S
        }
        return {"file": file, "blocks": names, "tests": tests}


def telling(files: dict[str, Path]) -> dict[str, CodeType]:
    """The code of modules that tell what is entered, by their names: made once for all forks, as it takes a second."""
    return {name: _compiled(Blocks(name, file.read_bytes()).tree, str(file)) for name, file in files.items()}


def told(files: dict[str, Path], code: Mapping[str, CodeType], recorder: Recorder) -> Planted:
    """An import hook under which modules are `telling`, which `recorder` hears."""
    return Planted(files, lambda module, source: code[module], {ENTERED: recorder.entered.add})


def state_of(file: Path) -> str:
    """What a test file and the helpers of its folder say: a record of another state is made anew."""
    folders = [file.parent, *([file.parent.parent] if file.parent.name == INTERNALS else [])]
    beside = [each for folder in folders for each in sorted(folder.glob("*.py"))]
    helpers = [each for each in beside if not each.name.startswith("test_")]
    return sha256(b"\0".join(each.read_bytes() for each in [file, *helpers])).hexdigest()[:16]


class Nearest:
    """The tests that are asked about a place."""

    def __init__(self, records: Sequence[Record]) -> None:
        """Choose of what is recorded."""
        self.records = {record.file: record for record in records}
        self._by: dict[str, dict[str, list[str]]] = {}
        """By block, function and module: of each test file the tests."""
        for record in records:
            for test, (_, blocks) in record.tests.items():
                names = {name for place in blocks for name in _wider(record.blocks[place])}
                for name in names:
                    self._by.setdefault(name, {}).setdefault(record.file, []).append(test)

    def to(self, module: str, block: str, function: str, own: str) -> list[str]:
        """Those that enter the block, or else its function, or else its module; then the rest of their files.

        A file that was recorded when the function said something else is asked as the function's. Quick tests go first:
        a few slow ones would leave no time for them.
        """
        as_it_is, any_words = self._by.get(_function(block), {}), self._by.get(f"{module}:{function}", {})
        earlier = {file: tests for file, tests in any_words.items() if block and file not in as_it_is}
        found = {**self._by.get(block, {}), **earlier} or any_words or self._by.get(module, {})
        found = found or {file: [] for file in self.records if file.startswith(own)}
        spent, chosen = 0.0, []
        files = sorted(found, key=lambda file: (not file.startswith(own), self._wide(file, found[file])))
        rest = [(file, list(self.records[file].tests)) for file in files[:MOST_FILES]]
        in_turn = [(file, found[file]) for file in files[:MOST_FILES]] + rest
        for most_s, (file, tests) in product((QUICK_S, LONG_S), in_turn):
            timed = self.records[file].tests
            for test in sorted(set(tests).difference(chosen), key=lambda test: (len(timed[test][1]), test)):
                if timed[test][0] <= min(most_s, BUDGET_S - spent):
                    spent += timed[test][0]
                    chosen.append(test)
        return chosen

    def of_files(self, folder: str, begin: str) -> list[str]:
        """Those of the files in `folder`, and below, whose names begin so."""
        files = (file for file in self.records if file.startswith(folder) and Path(file).name.startswith(begin))
        return [test for file in files for test in self.records[file].tests]

    def knows(self, test: str) -> bool:
        """Whether it is recorded."""
        record = self.records.get(test.partition("::")[0])
        return record is not None and test in record.tests

    def seconds(self, tests: Sequence[str]) -> float:
        """How long they take."""
        return sum(self.records[test.partition("::")[0]].tests[test][0] for test in tests)

    def _wide(self, file: str, tests: Sequence[str]) -> int:
        """How many blocks that one of the tests enters which enters fewest: it looks at this place, not through it."""
        timed = self.records[file].tests
        return min((len(timed[test][1]) for test in tests), default=0)


def _function(block: str) -> str:
    """The function as it is, without the place in it."""
    return block.rpartition("+")[0]


def _wider(block: str) -> tuple[str, str, str, str]:
    function = block.partition("@")[0]
    return block, _function(block), function, function.partition(":")[0]


def read(file: Path) -> Record:
    """A record as it was kept."""
    kept = json.loads(file.read_text())
    return Record(kept["file"], kept["blocks"], {test: (each[0], each[1]) for test, each in kept["tests"].items()})
