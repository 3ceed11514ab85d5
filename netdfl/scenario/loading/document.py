"""A reader of YAML 1.2 that keeps the place in the file of every key and value."""

from __future__ import annotations

from dataclasses import dataclass, field
from io import StringIO
from typing import NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

from netdfl.core.errors import Problem, ScenarioError
from netdfl.core.files import HALF_CHARACTER

Path = tuple[str | int, ...]
MOST_BYTES = 16_000_000
MOST_VALUES = 100_000
"""The most keys and values of a document; an alias counts as much as the values that it repeats."""
MOST_DEPTH = 64
MOST_LINES = 1_000_000
MOST_LETTERS = 4_000_000


class SourcePlace(NamedTuple):
    """A place in a scenario file, with line and column from 1; or a `--set` override, with line and column 0."""

    file: str
    line: int = 0
    column: int = 0


@dataclass
class Document:
    """A scenario as written: its values, and the places of its keys and values."""

    file: str
    data: object = None
    keys: dict[Path, SourcePlace] = field(default_factory=dict)
    values: dict[Path, SourcePlace] = field(default_factory=dict)

    def place(self, path: Path, *, key: bool = False) -> SourcePlace:
        """Return the line and column of the value at `path`, a sequence of keys, or of the nearest enclosing mapping.

        With `key`, they are of the key instead.
        """
        for length in range(len(path), -1, -1):
            places = self.keys if key or length < len(path) else self.values
            if found := places.get(path[:length]) or self.values.get(path[:length]):
                return found
        return SourcePlace(self.file)

    def problem(self, path: Path, what: str, expected: str = "", remedy: str = "", *, key: bool = False) -> Problem:
        """Create a `Problem`, a mistake that the user is shown, for the value at `path`, a sequence of keys.

        With `key`, it shows the place of the key, not of the value.
        """
        return Problem(what, expected, remedy, *self.place(path, key=key))


class BoundedComposer(Composer):
    """A YAML composer for at most `MOST_VALUES` keys and values, `MOST_DEPTH` levels deep.

    Raises ValueError beyond these bounds.
    """

    depth = values = 0

    def compose_node(self, parent: object, index: object) -> Node | None:
        """Compose the next YAML node. Raises ValueError for too large or too deep a document."""
        self.values += 1
        if self.values > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES:,} keys and values; long tables belong into files beside it")
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise ValueError(f"more than {MOST_DEPTH} levels of nesting")
        try:
            node: Node | None = super().compose_node(parent, index)
            return node
        finally:
            self.depth -= 1


WHOLE_CHARACTER = "write the character itself in place of its escapes"


def half_character(text: str) -> str:
    """Return an error message if a text has half of a character (a lone surrogate); else an empty text."""
    return f"{text!r} has half of a character" if HALF_CHARACTER.search(text) else ""


def parse(text: str, file: str) -> Document:
    """Read one YAML 1.2 document.

    Raises ScenarioError for a syntax error, a repeated key, or a document beyond the bounds.
    """
    if text.count("\n") > MOST_LINES or len(max(text.split("\n"), key=len)) > MOST_LETTERS:
        what = f"more than {MOST_LINES:,} lines, or a line of more than {MOST_LETTERS:,} letters"
        raise ScenarioError([Problem(what, "expected a scenario; data belong into files beside it", file=file)])
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = BoundedComposer
    try:
        root = yaml.compose(StringIO(text))
        reading = _DocumentReader(Document(file), yaml)
        if root is not None:
            reading.document.data = reading.value(root, ())
    except MarkedYAMLError as exc:
        at_end = exc.problem_mark is not None and exc.problem_mark.line >= len(text.splitlines())
        mark = (exc.context_mark if at_end else exc.problem_mark) or exc.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        what = f"not valid YAML: {exc.problem or exc.context}"
        raise ScenarioError([Problem(what, "", _hint(text, line), file, line, column)]) from exc
    except (YAMLError, RecursionError, ValueError) as exc:
        raise ScenarioError([Problem(f"not valid YAML: {exc}".splitlines()[0], file=file)]) from exc
    if reading.problems:
        raise ScenarioError(reading.problems)
    return reading.document


def item(value: object, key: str | int) -> object:
    """Return the item of a mapping or a list at `key`; None if there is none."""
    try:
        return value[key]  # type: ignore[index]
    except (TypeError, KeyError, IndexError):
        return None


def _hint(text: str, line: int) -> str:
    lines = text.splitlines()
    near = "\n".join(lines[max(0, line - 2) : line])
    return "indent with spaces, not tabs" if "\t" in near else "check the indentation, the colons and the quotes here"


class _DocumentReader:
    def __init__(self, document: Document, yaml: YAML) -> None:
        self.document = document
        self.yaml = yaml
        self.problems: list[Problem] = []
        self.open: list[int] = []

    def value(self, node: Node, path: Path) -> object:
        """Return the plain value of the YAML `node`, and store its place in the file under `path`."""
        if len(self.document.values) > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES:,} values, counting what aliases stand for")
        mark = node.start_mark
        self.document.values[path] = SourcePlace(self.document.file, mark.line + 1, mark.column + 1)
        if isinstance(node, ScalarNode):
            self._check(node)
            return self.yaml.constructor.construct_object(node, deep=True)
        if id(node) in self.open:
            self._problem(node, "an alias inside what it stands for", "write the value out")
            return None
        self.open.append(id(node))
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, path)
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        finally:
            self.open.pop()

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, object]:
        result: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            if key in result:
                first = self.document.keys[(*path, key)]
                self._problem(key_node, f"the key {key!r} is repeated", f"it stands on line {first.line} already")
                continue
            mark = key_node.start_mark
            self.document.keys[(*path, key)] = SourcePlace(self.document.file, mark.line + 1, mark.column + 1)
            result[key] = self.value(value_node, (*path, key))
        return result

    def _key(self, node: Node) -> str:
        """Return the key of a YAML mapping as text; a number, such as a node's, keeps its spelling."""
        tag, written = str(node.tag), str(node.value) or "null"
        if not isinstance(node, ScalarNode):
            self._problem(node, "a key that is no text", "write a word before the colon; {...} and [...] are values")
        elif tag.endswith(":merge"):
            self._problem(node, "YAML 1.2 has no merge keys (<<)", "write the keys out; an alias is a whole value")
        elif not tag.endswith((":str", ":int")):
            self._problem(node, f"the key {written} is no text", f"quote it: {written!r}")
        self._check(node)
        return str(node.value)

    def _check(self, node: Node) -> None:
        if what := half_character(str(node.value)):
            self._problem(node, what, WHOLE_CHARACTER)

    def _problem(self, node: Node, what: str, remedy: str) -> None:
        mark = node.start_mark
        self.problems.append(Problem(what, "", remedy, self.document.file, mark.line + 1, mark.column + 1))
