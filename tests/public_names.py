"""The names of `netdfl.extend` with their signatures: the page that lists them, and what was promised of them.

    python -m tests.public_names             # writes docs/extend.md anew
    python -m tests.public_names --released  # at a release: what is promised from now on

`tests/algorithms/test_extend.py` compares both.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import netdfl.extend

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "extend.md"
PROMISED = ROOT / "tests" / "algorithms" / "extend.json"
CHAPTERS: Mapping[str, Sequence[str]] = {
    "An algorithm": ("Algorithm", "Entry", "Exchange", "WaitPolicy", "gossip", "push_sum", "server"),
    "A round": ("View", "Role", "NodeId", "Update", "Received", "Extras"),
    "Local training": (
        *("LocalSolver", "LocalData", "Gradient", "MixingIndependent", "Stateless", "Memoryless", "NoState"),
        *("local_sgd", "LocalSgd", "StepSolver", "StepRequests", "keeping_momentum", "KeptMomentum", "QuasiGlobal"),
        *("RoundStart", "PlainStart", "Ole"),
    ),
    "Mixing": (
        *("Mixing", "MixResult", "RowMixing", "ShareMixing", "weighted_mean", "undirected", "directed", "Gossip"),
        *("GossipThenStep", "PushSum", "Pairwise", "SlowMomentum", "choco", "deepsqueeze"),
    ),
    "A server": ("Aggregation", "AggregationWrapper", "Averaging", "averaged", "controlled"),
    "Messages": ("pack", "to_all", "vector", "extra", "mass", "Inbox", "Outbox", "Message", "Payload"),
    "Parameters": (
        *("Parameters", "Sgd", "AnySgd", "PositiveFloat", "NonNegativeFloat", "PositiveInt", "NonNegativeInt"),
        *("Probability", "TimeNs", "Momentum", "Radius", "Fraction", "Interpolation"),
    ),
    "Graphs, randomness, compression": (
        *("Topology", "static", "Graph", "MixingMatrix", "Streams", "Compressor", "EncodedVector", "Array"),
        *("to_array", "to_tensor", "MalformedMessage"),
    ),
}
HOW_TO_READ = ("property", "cached_property", "classmethod", "staticmethod")
"""The decorators by which a member is used in another way than as a method of an object."""
HEAD = """# The names of `netdfl.extend`

What parts of one's own are written with. [An algorithm of your own](own_algorithm.md) shows how they work together. A
change of one of them is told in the changelog; what else lies in netdfl may change without a word. The signatures and
texts are those of the code (`python -m tests.public_names` writes this page).
"""


def definitions() -> Iterator[tuple[str, ast.Module]]:
    """Each public name, with its definition and text: without bodies and private members."""
    for name, module in sorted(_homes().items()):
        body = ast.parse(inspect.getsource(importlib.import_module(module))).body
        at = next(at for at, node in enumerate(body) if name in _names(node))
        said = [] if isinstance(body[at], ast.FunctionDef | ast.ClassDef) else _text(body[at + 1 :])
        yield name, ast.Module([_outline(body[at], body), *said], [])


@cache
def signatures() -> dict[str, str]:
    """Each public name's definition without its texts: what code outside of netdfl builds on."""
    return {name: ast.unparse(_without_texts(node)) for name, node in definitions()}


def untold(promised: Mapping[str, str], now: Mapping[str, str], changelog: str) -> list[str]:
    """The names that are gone or have another signature than was promised, and that the changelog does not name."""
    told = set(re.findall(r"`extend\.(\w+)`", _unreleased(changelog)))
    return [name for name, signature in promised.items() if now.get(name) != signature and name not in told]


def page() -> str:
    """The page of all names."""
    found, parts = _formatted({name: ast.unparse(node) for name, node in definitions()}), [HEAD]
    for chapter, names in CHAPTERS.items():
        parts.append(f"## {chapter}\n")
        parts += (f"### {name}\n\n```python\n{found[name]}\n```\n" for name in names)
    return "\n".join(parts)


def _homes() -> dict[str, str]:
    """The module in which each public name is defined."""
    tree = ast.parse(inspect.getsource(netdfl.extend))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return {each.name: str(node.module) for node in found for each in node.names if each.name in netdfl.extend.__all__}


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _outline(node: ast.stmt, module: Sequence[ast.stmt]) -> ast.stmt:
    if isinstance(node, ast.FunctionDef):
        node.decorator_list = [each for each in node.decorator_list if ast.unparse(each) in HOW_TO_READ]
        node.body = [*_text(node.body), ast.Expr(ast.Constant(...))]
    elif isinstance(node, ast.ClassDef):
        node.body = [*_text(node.body), *(_outline(each, module) for each in _members(node, module))] or [ast.Pass()]
        node.bases = [base for base in node.bases if not ast.unparse(base).startswith("_")]
        node.decorator_list = [each for each in node.decorator_list if ast.unparse(each).startswith("dataclass")]
    return node


def _members(node: ast.ClassDef, module: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """What a class has that is public, also from private classes of its module."""
    for base in node.bases:
        for each in module:
            if isinstance(each, ast.ClassDef) and each.name == ast.unparse(base) and each.name.startswith("_"):
                yield from _members(each, module)
    shown = False
    for member in node.body[len(_text(node.body)) :]:
        if isinstance(member, ast.Expr):  # the text of the attribute before it
            if shown:
                yield member
            continue
        names = _names(member)
        shown = any(not name.startswith("_") or name == "__init__" for name in names)
        if shown:
            yield member


def _text(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    is_text = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return [body[0]] if is_text else []


def _without_texts(node: ast.Module) -> ast.Module:
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef | ast.ClassDef | ast.Module):
            each.body = [
                member
                for member in each.body
                if not (isinstance(member, ast.Expr) and isinstance(getattr(member.value, "value", None), str))
            ] or [ast.Pass()]
    return node


def _formatted(codes: Mapping[str, str]) -> dict[str, str]:
    """Definitions as the repository formats code."""
    command = [sys.executable, "-m", "ruff", "format", "--line-length", "120", "-"]
    code = "".join(f"# name {name}\n{code}\n" for name, code in codes.items())
    done = subprocess.run(command, input=code, text=True, capture_output=True, check=True, cwd=ROOT).stdout
    pieces = re.split(r"^# name (\w+)\n", done, flags=re.MULTILINE)[1:]
    return {name: piece.strip() for name, piece in zip(pieces[::2], pieces[1::2], strict=True)}


def _unreleased(changelog: str) -> str:
    return re.split(r"^## (?!Unreleased)", changelog, flags=re.MULTILINE)[0]


if __name__ == "__main__":
    if "--released" in sys.argv:
        PROMISED.write_text(json.dumps(signatures(), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
