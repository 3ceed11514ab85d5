"""How much code there is: statements without docstrings, of a package, now or at a commit.

    python -m tests.statements [PACKAGE ...] [--at COMMIT]

Lines count comments, and reward long ones; statements of the syntax tree count what a reader has to follow. By default
of the packages that a message passes through and is recorded in.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("transport", "node", "links", "worlds/simulated", "record", "explore")


def statements(source: str) -> int:
    """How many there are in a module."""
    nodes = list(ast.walk(ast.parse(source)))
    return sum(isinstance(node, ast.stmt) for node in nodes) - sum(map(_num_docstrings, nodes))


def _num_docstrings(node: ast.AST) -> int:
    """Strings that stand alone in a body, those after an assignment too."""
    body = getattr(node, "body", ())
    return sum(
        isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str)
        for each in (body if isinstance(body, list) else ())
    )


def sources(package: str, commit: str | None) -> Iterator[str]:
    """The text of all modules below `netdfl/package` but generated ones."""
    if commit is None:
        yield from (
            path.read_text() for path in sorted((ROOT / "netdfl" / package).rglob("*.py")) if _counts(path.name)
        )
        return
    names = _git("ls-tree", "-r", "--name-only", commit, f"netdfl/{package}/").splitlines()
    yield from (_git("show", f"{commit}:{name}") for name in names if name.endswith(".py") and _counts(name))


def _counts(name: str) -> bool:
    return not name.endswith("_pb2.py")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def main() -> None:
    """Print a line a package, and the sum."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", nargs="*", default=PACKAGES, metavar="PACKAGE")
    parser.add_argument("--at", metavar="COMMIT")
    args = parser.parse_args()
    counts = {package: sum(map(statements, sources(package, args.at))) for package in args.packages}
    for package, count in {**counts, "all": sum(counts.values())}.items():
        print(f"{package:16} {count:6,}")


if __name__ == "__main__":
    main()
