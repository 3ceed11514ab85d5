"""Small faults that could be planted in a module: a comparison off by one, a `not` that is missing, a call left out.

A mutation is a change of text at one place, known by the function, the line's own text and what becomes of it, so that
it is the same one when lines above it move. No targets are sentences (strings, f-strings, `raise`), docstrings,
annotations, decorators, `__repr__`, what stands under `TYPE_CHECKING`, and what asserts (`assert`, `zip(strict=True)`).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from hashlib import sha256

COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.MatMult: ast.Mult,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
SYMMETRIC = {"min", "max", "isinstance", "issubclass", "cast", "gcd", "hypot", "isclose", "equal", "maximum", "minimum"}
"""Calls whose arguments say the same in either order, or speak of types."""
UNREAD = {"__repr__", "__str__"}


@dataclass(frozen=True)
class Mutation:
    """One change of text: the bytes from `start` to `end` of a file become `new`."""

    file: str
    function: str
    text: str
    what: str
    number: int
    line: int
    start: int
    end: int
    new: str
    source: str
    """A digest of the source that it was found in."""

    @property
    def key(self) -> str:
        """What it is known by."""
        return " | ".join([self.file, self.function, self.text, self.what, str(self.number)])

    def applied(self, source: bytes) -> bytes:
        """The file's source with the change. Raises ValueError if it is not the one in which the place was found."""
        if digest(source) != self.source:
            raise ValueError(f"{self.file} has changed since this mutation was found")
        return source[: self.start] + self.new.encode() + source[self.end :]


def digest(source: bytes) -> str:
    """What a source is known by."""
    return sha256(source).hexdigest()[:16]


def mutations(file: str, source: bytes) -> list[Mutation]:
    """Every mutation of a module, in the order of its lines."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    found: list[Mutation] = []
    seen, alike = set(), Counter[tuple[str, str, str]]()
    for function, old, new in _Sites().of(ast.parse(source)):
        assert old.end_lineno is not None
        assert old.end_col_offset is not None
        start, end = starts[old.lineno - 1] + old.col_offset, starts[old.end_lineno - 1] + old.end_col_offset
        after = ast.unparse(new)
        if (start, end, after) in seen or after == ast.unparse(old):
            continue
        seen.add((start, end, after))
        text, what = lines[old.lineno - 1].decode().strip(), f"{_short(old)} -> {_short(new)}"
        alike[function, text, what] += 1
        number = alike[function, text, what]
        changed = f"({after})" if isinstance(new, ast.expr) else after
        found.append(Mutation(file, function, text, what, number, old.lineno, start, end, changed, digest(source)))
    return sorted(found, key=lambda each: (each.start, each.end, each.new))


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 100 else text[:97] + "..."


Change = tuple[ast.AST, ast.AST]
Site = tuple[str, ast.AST, ast.AST]


class _Sites:
    """Walks a tree and gives each place with what could stand there instead."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.in_function = self.returns = False

    def of(self, node: ast.AST) -> Iterator[Site]:
        """All sites in `node`."""
        match node:
            case ast.JoinedStr() | ast.Raise() | ast.Assert() | ast.Import() | ast.ImportFrom():
                return
            case ast.If(test=ast.Name("TYPE_CHECKING")):
                return
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield from self._definition(node)
                return
            case ast.AnnAssign(annotation=ast.Name("TypeAlias")):
                return
            case ast.AnnAssign(value=value):
                yield from self.of(value) if value is not None else ()
                return
        for old, new in self._instead(node):
            yield ".".join(self.names), old, new
        for child in _children(node):
            yield from self.of(child)

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Iterator[Site]:
        if node.name in UNREAD:
            return
        kept = self.in_function, self.returns
        self.names.append(node.name)
        if not isinstance(node, ast.ClassDef):
            for default in [*node.args.defaults, *node.args.kw_defaults]:
                yield from self.of(default) if default is not None else ()
            self.in_function, self.returns = True, not _nothing(node.returns)
        for statement in node.body:
            yield from self.of(statement)
        self.names.pop()
        self.in_function, self.returns = kept

    def _instead(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.If(test=test) | ast.IfExp(test=test):
                yield from _negated(test)
            case ast.comprehension(ifs=ifs):
                yield from (change for test in ifs for change in _negated(test))
            case ast.Slice(lower=lower, upper=upper):
                yield from _moved(lower, ast.Add())
                yield from _moved(upper, ast.Sub())
            case _:
                yield from ((node, new) for new in self._another(node))

    def _another(self, node: ast.AST) -> Iterator[ast.AST]:
        match node:
            case ast.Compare():
                yield from _compared(node)
            case ast.BinOp() if self.in_function and not _sentence(node):
                yield _with(node, op=COMPUTED[type(node.op)]())
            case ast.AugAssign():
                yield _with(node, op=COMPUTED[type(node.op)]())
                yield ast.Pass()
            case ast.BoolOp(op=op, values=values):
                yield _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
                for place in range(len(values)):
                    rest = values[:place] + values[place + 1 :]
                    yield _with(node, values=rest) if len(rest) > 1 else rest[0]
            case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
                yield operand
            case ast.Constant(value=value):
                yield from _constants(value)
            case ast.Call():
                yield from _calls(node)
            case ast.Return(value=value) if self.returns and not _nothing(value) and not _false(value):
                yield ast.Return(ast.Constant(None))
            case ast.Expr(value=ast.Call() | ast.Await()) | ast.Break() | ast.Continue():
                yield ast.Pass()
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) if self.in_function:
                yield ast.Pass()


def _children(node: ast.AST) -> Iterable[ast.AST]:
    match node:
        case ast.keyword(arg="strict"):
            return []
        case ast.Call(func=ast.Name("isinstance" | "issubclass" | "cast" | "TypeVar" | "NewType"), args=args):
            return [arg for arg in args if not isinstance(arg, ast.BinOp | ast.Tuple | ast.Subscript)]
        case ast.arguments():
            return [default for default in [*node.defaults, *node.kw_defaults] if default is not None]
    return ast.iter_child_nodes(node)


def _nothing(node: ast.expr | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def _false(node: ast.expr | None) -> bool:
    """None in its place would be as good."""
    return isinstance(node, ast.Constant) and node.value is False


def _sentence(node: ast.AST) -> bool:
    """Whether strings are put together, or parts of a type."""
    parts = [node]
    while parts:
        part = parts.pop()
        if isinstance(part, ast.JoinedStr) or (isinstance(part, ast.Constant) and isinstance(part.value, str | None)):
            return True
        if isinstance(part, ast.BinOp):
            parts += [part.left, part.right]
    return False


def _with(node: ast.AST, **fields: object) -> ast.AST:
    new = copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _compared(node: ast.Compare) -> Iterator[ast.AST]:
    for place, op in enumerate(node.ops):
        for other in COMPARED[type(op)]:
            yield _with(node, ops=[*node.ops[:place], other(), *node.ops[place + 1 :]])


def _negated(test: ast.expr) -> Iterator[Change]:
    if not isinstance(test, ast.Compare) and not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
        yield test, ast.UnaryOp(ast.Not(), test)


def _constants(value: object) -> Iterator[ast.AST]:
    match value:
        case bool():
            yield ast.Constant(not value)
        case int():
            yield ast.Constant(value + 1)
            if value == 1:
                yield ast.Constant(0)
        case float():
            yield ast.Constant(2 * value or 1.0)


def _moved(bound: ast.expr | None, by: ast.operator) -> Iterator[Change]:
    if bound is not None and not isinstance(bound, ast.Constant):
        yield bound, ast.BinOp(bound, by, ast.Constant(1))


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in NAMES and isinstance(node.func, ast.Name):
        yield _with(node, func=ast.Name(NAMES[name]))
    if len(node.args) > 1 and name not in SYMMETRIC and not any(isinstance(arg, ast.Starred) for arg in node.args[:2]):
        yield _with(node, args=[node.args[1], node.args[0], *node.args[2:]])
