"""Shell completion of arguments: shipped scenarios, worlds, lists of parts. Paths of files are left to the shell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from typer import Context


def scenarios(incomplete: str) -> list[str]:
    """Return shipped scenarios by name, and scenario files and folders with this prefix."""
    from netdfl.scenario.loading.shipped import shipped_scenarios

    names = [name for name in shipped_scenarios() if name.startswith(incomplete)]
    return names + _paths(incomplete, lambda path: path.suffix in (".yaml", ".yml"))


def runs(incomplete: str) -> list[str]:
    """Return folders with this prefix, run directories among them."""
    return _paths(incomplete, lambda path: False)


def worlds(incomplete: str) -> list[str]:
    """Return the worlds that a fleet can run in."""
    from netdfl.scenario.model.world import WORLD

    return [name for name in WORLD.names() if name.startswith(incomplete)]


def lists(incomplete: str) -> list[str]:
    """Return the names of the lists that `netdfl list` can print."""
    from netdfl.scenario.explain.keys import lists as names

    return [name for name in names() if name.startswith(incomplete)]


def parts(ctx: Context, incomplete: str) -> list[str]:
    """Return the names that begin with `incomplete` in one of the lists that `netdfl list` prints.

    The previous argument of the command says which list.
    """
    from netdfl.scenario.explain.keys import lists, rows

    what = ctx.params.get("what") or ""
    names = [str(row["name"]) for row in rows(what)] if what in lists() else []
    return [name for name in names if name.startswith(incomplete)]


def _paths(incomplete: str, wanted: Callable[[Path], bool]) -> list[str]:
    folder, _, begun = incomplete.rpartition("/")
    root = Path(folder or ("/" if incomplete.startswith("/") else "."))
    if not root.is_dir():
        return []
    found = sorted(path for path in root.iterdir() if path.name.startswith(begun) and not path.name.startswith("."))
    prefix = incomplete[: len(incomplete) - len(begun)]
    return [prefix + path.name + "/" * path.is_dir() for path in found if path.is_dir() or wanted(path)]
