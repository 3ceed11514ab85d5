"""Tables of parts read from their source: names, signatures and help texts of modules that import torch.

Importing torch takes seconds, and a scenario must be checked in a moment. So a module's top-level names
are evaluated one by one, only where asked for; a function or class is known by its signature, and the
module behind it is imported when it is called.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

_SLOW = ("torch", "torchvision", "grpc")
_OURS = "netdfl."
_LIGHT = ("netdfl.core.", "netdfl.topology.", "netdfl.links.")


class Sketch:
    """A function or class known by its source; calling it imports its module and calls the real one."""

    def __init__(self, module: str, node: ast.FunctionDef | ast.ClassDef, names: Names) -> None:
        """Take the signature of `node`, its types evaluated in `names`."""
        self.__module__, self.__name__, self.__qualname__ = module, node.name, node.name
        self.__doc__ = ast.get_docstring(node)
        self._definition, self._names = node, names

    @property
    def real(self) -> Any:
        """The function or class itself."""
        return getattr(importlib.import_module(self.__module__), self.__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Import the module, which may take seconds, and call the real one."""
        return self.real(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        node: Any = self._definition
        skip = isinstance(node, ast.ClassDef)
        if skip:
            node = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
            if node is None:
                return inspect.signature(self.real)
        parameters = list(self._parameters(node.args))
        return inspect.Signature(parameters[1:] if skip else parameters)

    def _parameters(self, args: ast.arguments) -> Iterator[inspect.Parameter]:
        positional = [*args.posonlyargs, *args.args]
        defaults = [None] * (len(positional) - len(args.defaults)) + list(args.defaults)
        for index, (arg, default) in enumerate(zip(positional, defaults, strict=True)):
            only = index < len(args.posonlyargs)
            yield self._parameter(
                arg, default, inspect.Parameter.POSITIONAL_ONLY if only else inspect.Parameter.POSITIONAL_OR_KEYWORD
            )
        for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
            yield self._parameter(arg, default, inspect.Parameter.KEYWORD_ONLY)

    def _parameter(self, arg: ast.arg, default: ast.expr | None, kind: Any) -> inspect.Parameter:
        """Context (positional-only) parameters keep no type: it may be a tensor's."""
        empty = inspect.Parameter.empty
        typed = arg.annotation is not None and kind is not inspect.Parameter.POSITIONAL_ONLY
        return inspect.Parameter(
            arg.arg,
            kind,
            default=empty if default is None else self._names.value(default),
            annotation=self._names.value(arg.annotation) if typed and arg.annotation else empty,
        )


class Names(dict[str, Any]):
    """The top-level names of a module, evaluated when asked for."""

    def __init__(self, module: str) -> None:
        """Read the source of `module`; nothing is executed."""
        super().__init__()
        self.module = module
        spec = importlib.util.find_spec(module)
        assert spec is not None, module
        assert spec.origin is not None, module
        self._package = module if spec.submodule_search_locations else module.rpartition(".")[0]
        self._statements = dict(_named(ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body))

    def __missing__(self, name: str) -> Any:
        if name not in self._statements:
            raise KeyError(name)
        self[name] = value = self._evaluate(name, self._statements[name])
        return value

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{self.module} has no {name}") from None

    def value(self, expression: ast.expr) -> Any:
        """The value of an expression of this module."""
        if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
            return expression.value
        return eval(compile(ast.Expression(expression), self.module, "eval"), {}, self)

    def _evaluate(self, name: str, statement: ast.stmt) -> Any:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            return Sketch(self.module, statement, self)
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            return self.value(statement.value) if statement.value else None
        assert isinstance(statement, ast.Import | ast.ImportFrom)
        alias = next(a for a in statement.names if (a.asname or a.name.partition(".")[0]) == name)
        if isinstance(statement, ast.Import):
            return _module(alias.name if alias.asname else alias.name.partition(".")[0])
        source = importlib.util.resolve_name("." * statement.level + (statement.module or ""), self._package)
        if _is_submodule(source, alias.name):
            return _module(f"{source}.{alias.name}")
        return getattr(_module(source), alias.name)


class _Unknown:
    """Stands for a module that is too slow to import; its names are unknown, too."""

    def __getattr__(self, name: str) -> Any:
        return Any


@cache
def names_of(module: str) -> Names:
    """The top-level names of `module`, evaluated when asked for."""
    return Names(module)


def _module(name: str) -> Any:
    if name.partition(".")[0] in _SLOW:
        return _Unknown()
    if name.startswith(_OURS) and not name.startswith(_LIGHT):
        return names_of(name)
    return importlib.import_module(name)


def _is_submodule(package: str, name: str) -> bool:
    """Whether `from package import name` imports a module of ours. `package` itself is not imported."""
    spec = importlib.util.find_spec(package) if package.startswith("netdfl") else None
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    return any((folder / f"{name}.py").exists() or (folder / name).is_dir() for folder in folders)


def _named(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield statement.name, statement
        elif isinstance(statement, ast.Assign):
            yield from ((target.id, statement) for target in statement.targets if isinstance(target, ast.Name))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, statement
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name.partition(".")[0], statement) for alias in statement.names)
        elif isinstance(statement, ast.If):
            yield from _named(statement.body)
