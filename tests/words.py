"""Names of classes and docstrings, held to the field's words: `python -m tests.words` counts faults by package.

`python -m tests.words --draw 7` prints fifty definitions drawn by that seed, each with its docstring, for a reader who
does not know the project.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

NETDFL = Path(__file__).resolve().parents[1] / "netdfl"
GENERATED = "transport/v1"
CLEAN = frozenset(
    {
        "algorithms",
        "blame",
        "cli",
        "collection",
        "compression",
        "core",
        "diagnosis",
        "doctor",
        "explore",
        "exports",
        "host",
        "links",
        "mixing",
        "node",
        "packets",
        "prove",
        "record",
        "replaying",
        "report",
        "running",
        "scenario",
        "standalone",
        "study",
        "supervisor",
        "testing",
        "topology",
        "training",
        "transport",
        "web",
        "worlds",
        "worlds/simulated",
    }
)
"""Packages without a violation. A package enters when it has none, and none leaves."""

SHARED: Mapping[str, str] = {
    "EdgeState": "an edge of the link engine; a state of push-sum, whose checkpoints have the name",
    "Entry": "an entry of `links`, whose hash in 0.2.0 needs the name; a row of the catalog of algorithms, public",
    "Training": "the keys of a training task, whose hash in 0.2.0 needs the name; and a simulated fleet's training",
    "Task": "the training task of a node, and the task that a user writes; both are public",
}
"""Names that several modules give to their classes, a protocol and its implementations apart, each with the reason."""
PROTOCOLS: Mapping[str, str] = {}
"""Names that a protocol and its implementation share, each with the reason."""
MOST_SHARED = 25

_OF_THE_WIRE = "a message of control.proto, where a class and its message have one name"
_OF_A_CHECKPOINT = "a part of a mixing's state: checkpoints have the name"
NOUNS: Mapping[str, str] = {
    **dict.fromkeys(("Again", "Broke", "Crashed", "Evaluated", "Gone", "Happened", "Returned"), _OF_THE_WIRE),
    **dict.fromkeys(("Beside", "Drifted", "Heard", "Pending", "Perturbed", "Posted", "Said"), _OF_A_CHECKPOINT),
    "Averaging": "the averaging of models",
    "Finding": "the result of a diagnosis or of a check",
    "Mixing": "the mixing of vectors; the contract, public",
    **dict.fromkeys(("Remembered", "Unacknowledged"), "the messages that a node remembers: checkpoints have the name"),
    "Received": "the vectors that a node received: checkpoints have the name",
    "Recording": "the block `record` of a scenario, whose hash in 0.2.0 needs the name",
    "Reordering": "the reordering of messages on a link, public",
    "Sampling": "the choice of messages that are recorded",
    "Trained": "the outcome of a local round: checkpoints have the name",
    "Training": "the learning of a model from data",
    "Tuning": "the tuning of a model on synthetic examples",
}
"""Classes whose name looks like a participle and is a noun of the field, each with the reason."""
_PARTICLES = ("In", "Up", "Out", "Off", "By", "Anew", "Apart", "Over")
_IRREGULAR = frozenset(
    "Begun Broke Broken Built Came Chosen Come Cut Dealt Done Drawn Fallen Felt Found Given Gone Got Grown Heard Held "
    "Hidden Kept Known Laid Led Left Lent Lost Made Met Paid Put Ran Read Said Seen Sent Shown Shrunk Split "
    "Spoken Spread Stood Taken Taught Told Understood Went Withdrawn Worn Written".split()
)
_NO_NOUNS = frozenset("Again Alone Around Beneath Beside Down How Now Once Then Until What When Where Who Why".split())

PATTERNS: Mapping[str, str] = {
    "begins with a question word or a pronoun": r"^(What|Who|Whom|Whose|It|Its|They|Their|That|Those|These|Which)\b",
    "sends elsewhere and says nothing": r"^(See|As|Likewise|The same)\b",
    "of whom": r"\b[Oo]f whom\b",
    "that of, those of": r"\b([Tt]hat|[Tt]hose) of\b",
    "is told": r"\b(is|are|was) told\b",
    "whoever": r"\b[Ww](hoever|homever)\b",
    "whether that": r"\b[Ww]hether that\b",
}
"""Patterns that the first line of a docstring may not have."""
BRITISH = re.compile(
    r"\b\w*(colour|neighbour|behaviour|favour|standardis|normalis|initialis|optimis(e|i|ation)|organis|recognis|"
    r"serialis|summaris|minimis|maximis|randomis)\w*|\b(centre|modelling|labelled|signalling|travelling)\w*",
    re.IGNORECASE,
)
"""Spellings that are not American, anywhere in a docstring."""


class Docstring(NamedTuple):
    """A docstring, with its package and its place."""

    package: str
    place: str
    text: str


class NamedClass(NamedTuple):
    """A class, with its package and its module."""

    package: str
    module: str
    name: str


def package_of(file: Path) -> str:
    """Return the package of a file below netdfl; the simulated world counts as one of its own."""
    parts = file.relative_to(NETDFL).parts
    return "/".join(parts[:2]) if parts[:2] == ("worlds", "simulated") else parts[0] if len(parts) > 1 else "."


Scope: TypeAlias = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def modules() -> Mapping[Path, Sequence[Scope]]:
    """Parse every module of netdfl once; return it with its classes and functions."""
    files = (file for file in sorted(NETDFL.rglob("*.py")) if GENERATED not in file.as_posix())
    return {file: list(_scopes(ast.parse(file.read_text(encoding="utf-8")))) for file in files}


def _scopes(node: ast.AST) -> Iterator[Scope]:
    if isinstance(node, Scope):
        yield node
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.stmt | ast.ExceptHandler):
            yield from _scopes(each)


def packages() -> set[str]:
    return {package_of(file) for file in modules()}


@cache
def classes() -> Sequence[NamedClass]:
    return [
        NamedClass(package_of(file), file.relative_to(NETDFL).as_posix(), node.name)
        for file, scopes in modules().items()
        for node in scopes
        if isinstance(node, ast.ClassDef)
    ]


@cache
def docstrings() -> Sequence[Docstring]:
    return [
        Docstring(package_of(file), f"{file.relative_to(NETDFL).as_posix()}:{line}", text)
        for file, scopes in modules().items()
        for node in scopes
        for line, text in _texts(node)
    ]


def _texts(node: Scope) -> Iterator[tuple[int, str]]:
    """Yield the docstring of a module, class or function, and the texts below assignments."""
    if (text := ast.get_docstring(node, clean=False)) is not None:
        yield node.body[0].lineno, text
    for before, each in zip(node.body, node.body[1:], strict=False):
        value = each.value if isinstance(each, ast.Expr) else None
        if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(value, ast.Constant):
            yield each.lineno, str(value.value)


def is_no_noun(name: str) -> bool:
    """Whether a class's name is a participle, alone or with a particle, or another word that is no noun."""
    words = re.findall(r"[A-Z][a-z0-9]*", name)
    if not words or len(words) > 2 or (len(words) == 2 and words[1] not in _PARTICLES):
        return False
    first = words[0]
    participle = re.fullmatch(r"\w{2,}(ed|ing)", first) is not None and first not in ("Need", "Seed", "Speed")
    return participle or first in _IRREGULAR | _NO_NOUNS


def faults_of(text: str) -> list[str]:
    """Return the names of the patterns that a docstring has and may not have."""
    first = text.strip().splitlines()[0] if text.strip() else ""
    found = [name for name, pattern in PATTERNS.items() if re.search(pattern, first)]
    return [*found, *(["not American"] if BRITISH.search(text) else [])]


def shared_names() -> dict[str, set[NamedClass]]:
    """Return the classes whose name stands in several modules, by name."""
    found = defaultdict(set)
    for each in classes():
        found[each.name].add(each)
    return {name: all_of for name, all_of in found.items() if len(all_of) > 1}


def table() -> Iterator[tuple[str, int, int, int]]:
    """Yield, for each package, its classes with a shared name, those without a noun, and docstrings with faults."""
    known = {**SHARED, **PROTOCOLS}
    twice = Counter(each.package for name, all_of in shared_names().items() if name not in known for each in all_of)
    nouns = Counter(each.package for each in classes() if is_no_noun(each.name) and each.name not in NOUNS)
    texts = Counter(each.package for each in docstrings() if faults_of(each.text))
    for package in sorted(packages()):
        yield package, twice[package], nouns[package], texts[package]


def drawn(seed: int, count: int, in_place: bool = False) -> Iterator[str]:
    """Yield definitions drawn by a seed, each with its place, the class around it, its signature and its docstring.

    With `in_place` the first paragraphs of its module and of its class stand above it, as in an editor.
    """
    found = [
        (file, node)
        for file, scopes in modules().items()
        for node in scopes
        if not isinstance(node, ast.Module) and ast.get_docstring(node)
    ]
    for file, node in random.Random(seed).sample(found, count):
        classes = [each for each in modules()[file] if isinstance(each, ast.ClassDef) and node in each.body]
        around = [each.name for each in classes]
        lines = file.read_text(encoding="utf-8").splitlines()[node.lineno - 1 : node.body[0].lineno - 1]
        place = f"{file.relative_to(NETDFL).as_posix()}{''.join(f', class {name}' for name in around)}"
        above = [_first_paragraph(each) for each in (modules()[file][0], *classes)] if in_place else []
        yield "\n".join([place, *above, *lines, f'"""{ast.get_docstring(node)}"""'])


def _first_paragraph(scope: Scope) -> str:
    name = f"class {scope.name}" if isinstance(scope, ast.ClassDef) else "module"
    first, _, _ = (ast.get_docstring(scope) or "").partition("\n\n")
    return f"# {name}: {' '.join(first.split())}"


def main() -> None:
    """Print the table of faults, or a draw of docstrings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", type=int, metavar="SEED", help="print definitions drawn by this seed instead")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--in-place", action="store_true", help="with the first paragraphs of module and class above")
    asked = parser.parse_args()
    if asked.draw is not None:
        print(
            *(f"{number}. {each}" for number, each in enumerate(drawn(asked.draw, asked.count, asked.in_place), 1)),
            sep="\n\n",
        )
        return
    print(f"{'package':<18}{'shared names':>13}{'no nouns':>10}{'docstrings':>12}")
    for name, *counts in table():
        print(f"{name:<18}{counts[0]:>13}{counts[1]:>10}{counts[2]:>12}{'' if name in CLEAN else '   open'}")


if __name__ == "__main__":
    main()
