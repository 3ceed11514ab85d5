"""Whose code something happened in: netdfl's, a library's, or a user's own, which netdfl calls.

A user's is what is neither netdfl's, nor Python's, nor of an installed package, unless the scenario names a part of it.
"""

from __future__ import annotations

import inspect
import re
import site
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, ModuleType

from netdfl.core.errors import NetdflError, OwnCodeError, OwnPartError

HOME = "_netdfl_own_"
"""How the names of packages begin that stand for folders of a user's."""
_NETDFL = Path(__file__).resolve().parents[1]
_NEVER = ("netdfl", "torch", "torchvision")
"""Packages that are no user's, even where a scenario names a part of them."""
_NAMED: set[Path] = set()
"""Installed files, and folders of packages, that parts of scenarios were imported from."""


def named(module: ModuleType) -> None:
    """A scenario names a part of this module: its top package is a user's, though it may be installed."""
    name = module.__name__.partition(".")[0]
    top = sys.modules.get(name, module)
    found = [*getattr(top, "__path__", ()), *filter(None, [getattr(top, "__file__", None)])]
    place = Path(found[0]).resolve() if found else None
    if place is not None and name not in _NEVER and _is_installed(place):
        _NAMED.add(place)
        _owner.cache_clear()


def theirs(error: BaseException, where: str = "") -> OwnCodeError | None:
    """What is told of an error that a user's own code raised while it ran, at `where`; None for netdfl's.

    Its `__cause__` is what that code raised.
    """
    for each in _leaves(error):
        if isinstance(each, OwnPartError):
            return _because(OwnCodeError(f"{where}{each.what}"), each)
        place = "" if isinstance(each, NetdflError) else own_place(each)
        if place:
            return _because(OwnCodeError(f"{where}your own code raised {named_error(each)} ({place})"), each)
    return None


def _because(told: OwnCodeError, raised: BaseException) -> OwnCodeError:
    told.__cause__ = raised
    return told


def named_error(error: BaseException, doing: str = "") -> str:
    """Its type, `doing` what, and what it says in one line."""
    return f"{type(error).__name__}{doing}: {said(error)}".rstrip(": ")


def said(error: BaseException) -> str:
    """The first line of an exception's text, with the names of own modules as their author knows them."""
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    return re.sub(rf"{HOME}[0-9a-f]+\.", "", first)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def own_place(error: BaseException) -> str:
    """`file:line` of the last of a user's own lines that `error` passed, called by netdfl; else nothing."""
    if isinstance(error, SyntaxError) and error.filename and _owner(error.filename) == "user":
        return f"{error.filename}:{error.lineno}"
    return _last_own(traceback.walk_tb(error.__traceback__))


def own_place_here() -> str:
    """`file:line` of a user's own line that this was called from; nothing where none is under way."""
    return _last_own(reversed(list(traceback.walk_stack(None))))


def defined_at(thing: object) -> str:
    """`file:line` of a function or class; nothing where that is not known."""
    try:
        plain = inspect.unwrap(thing)  # type: ignore[arg-type]
        return f"{inspect.getsourcefile(plain)}:{inspect.getsourcelines(plain)[1]}"
    except (TypeError, OSError, ValueError):
        return ""


def _last_own(frames: Iterable[tuple[FrameType, int]]) -> str:
    """The innermost, where `frames` begin with the outermost. A program that calls netdfl is not meant."""
    called, place = False, ""
    for frame, line in frames:
        owner = _owner_of(frame.f_code)
        called |= owner == "netdfl"
        if owner == "user" and called:
            place = f"{frame.f_code.co_filename}:{line}"
    return place


def _owner_of(code: CodeType) -> str:
    return _owner(code.co_filename)


def is_users(filename: str) -> bool:
    """Whether code of that file is a user's own."""
    return _owner(filename) == "user"


@cache
def _owner(filename: str) -> str:
    """Of a file: netdfl, user, or library."""
    file = Path(filename).resolve()
    if filename.startswith("<") and not filename.startswith("<ipython"):
        return "library"
    if any(place == file or place in file.parents for place in _NAMED):
        return "user"
    if _NETDFL in file.parents:
        return "netdfl"
    return "library" if _is_installed(file) else "user"


def _is_installed(file: Path) -> bool:
    return any(place in file.parents for place in _installed())


@cache
def _installed() -> tuple[Path, ...]:
    """Where Python and its packages lie, and the commands that came with these."""
    paths = [*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()]
    keep = {"include", "platinclude", "data"}
    skipped = {sysconfig.get_paths()[name] for name in keep}
    return tuple(Path(path).resolve() for path in paths if path not in skipped)
