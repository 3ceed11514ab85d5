"""The owner of running code: netdfl, a library, or the user.

A user's code is code outside of netdfl, Python and installed packages. So is a package from which a scenario takes a
component, such as a solver.
"""

from __future__ import annotations

import inspect
import re
import site
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, ModuleType

from netdfl.core.errors import Interruption, NetdflError, OwnCodeError, OwnPartError

HOME = "_netdfl_own_"
"""The first letters of the made-up package names under which modules of a user's folders are imported."""
_NETDFL = Path(__file__).resolve().parents[1]
_NEVER = ("netdfl", "torch", "torchvision")
"""Packages that never count as a user's code, even where a scenario uses an object of them."""
_NAMED: set[Path] = set()
"""Installed files and package folders that count as the user's, as components of scenarios were imported from them."""


def named(module: ModuleType) -> None:
    """Count the top package of `module` as the user's code, even if installed, as a scenario names something in it."""
    name = module.__name__.partition(".")[0]
    top = sys.modules.get(name, module)
    found = [*getattr(top, "__path__", ()), *filter(None, [getattr(top, "__file__", None)])]
    place = Path(found[0]).resolve() if found else None
    if place is not None and name not in _NEVER and _is_installed(place):
        _NAMED.add(place)
        _owner.cache_clear()


def theirs(error: BaseException, where: str = "") -> OwnCodeError | None:
    """Return an OwnCodeError for an error that a user's own code raised at `where`; None if netdfl raised it.

    The error's `__cause__` is the exception of that code. An interrupt is nobody's mistake, whatever line it hit; an
    OwnCodeError is returned as it is.
    """
    raised = list(_leaves(error))
    if any(isinstance(each, KeyboardInterrupt | Interruption) for each in raised):
        return None
    for each in raised:
        if isinstance(each, OwnCodeError):
            return each
        if isinstance(each, OwnPartError):
            return _because(OwnCodeError(f"{where}{each.what}"), each)
        place = "" if isinstance(each, NetdflError) else own_place(each)
        if place:
            return _because(OwnCodeError(f"{where}your own code raised {named_error(each)} ({place})"), each)
    return None


@contextmanager
def telling_theirs(where: Callable[[], str]) -> Iterator[None]:
    """Raise whatever a user's own code raises in the `with` block, even SystemExit, as an OwnCodeError.

    `where` returns the beginning of its text. Other errors, and interrupts, pass as they are.
    """
    try:
        yield
    except BaseException as error:
        told = theirs(error, where())
        if told is None or told is error:
            raise
        raise told from told.__cause__


def misgiven(part: object, method: str, gave: str, remedy: str) -> OwnPartError:
    """Return the error for what a method of a user's part returned (`gave`, in words), with the place of the method."""
    kind = type(part)
    place = defined_at(getattr(kind, method, kind)) or defined_at(kind)
    return OwnPartError(f"{kind.__name__} returned {gave} from {method}: {remedy}" + f" ({place})" * bool(place))


def _because(told: OwnCodeError, raised: BaseException) -> OwnCodeError:
    told.__cause__ = raised
    return told


def named_error(error: BaseException, doing: str = "") -> str:
    """Return an error as text: its type, the activity `doing` that failed, and the first line of its message."""
    return f"{type(error).__name__}{doing}: {said(error)}".rstrip(": ")


def said(error: BaseException) -> str:
    """Return the first line of an error's message, with the made-up prefix (`HOME`) of a user's modules removed."""
    return without_home(next((line for line in str(error).splitlines() if line.strip()), ""))


def without_home(text: str) -> str:
    """Return `text` without the made-up prefix (`HOME`) under which a user's modules are imported."""
    return re.sub(rf"{HOME}[0-9a-f]+\.", "", text)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield an error; of a group, each error in it, and then the group itself, which a user's code may have made."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    yield _unwrapped(error)


class CarriedError(Exception):
    """An error whose cause is one that must not be raised where a coroutine waits, such as SystemExit."""


def carried(error: BaseException) -> BaseException:
    """Return an error that a future can pass on, and that ends no loop, for `error`; an interrupt is left as it is."""
    if isinstance(error, Exception | KeyboardInterrupt | Interruption) and not isinstance(error, StopIteration):
        return error
    found = CarriedError(f"{type(error).__name__}: {error}")
    found.__cause__ = error
    return found


def _unwrapped(error: BaseException) -> BaseException:
    """Return the error that a generator, a coroutine or a future has made the cause of another one, else `error`."""
    cause = error.__cause__
    made = type(error) is RuntimeError and isinstance(cause, StopIteration | StopAsyncIteration)
    return cause if cause is not None and (made or isinstance(error, CarriedError)) else error


def own_place(error: BaseException) -> str:
    """Return `file:line` of the last line of a user's code in the traceback that netdfl called; empty if none."""
    error = _unwrapped(error)
    if isinstance(error, SyntaxError) and error.filename and _owner(error.filename) == "user":
        return f"{error.filename}:{error.lineno}"
    return _last_own(traceback.walk_tb(error.__traceback__))


def own_place_here() -> str:
    """Return `file:line` of the innermost user's line that netdfl called in the current call stack; empty if none."""
    return _last_own(reversed(list(traceback.walk_stack(inspect.currentframe()))))


def defined_at(thing: object) -> str:
    """Return `file:line` of a function or class; empty if unknown, or in netdfl, where nobody has to mend it."""
    try:
        plain = inspect.unwrap(thing)  # type: ignore[arg-type]
        file = inspect.getsourcefile(plain)
        return "" if _owner(str(file)) == "netdfl" else f"{file}:{inspect.getsourcelines(plain)[1]}"
    except (TypeError, OSError, ValueError):
        return ""


def _last_own(frames: Iterable[tuple[FrameType, int]]) -> str:
    """Return `file:line` of the innermost line of a user's code that netdfl called; `frames` start with the outermost.

    Lines of a user's program that calls netdfl do not count.
    """
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
    """Return whether a file's code is the user's own."""
    return _owner(filename) == "user"


@cache
def _owner(filename: str) -> str:
    """Return the owner of a file's code: netdfl, user, or library."""
    file = Path(filename).resolve()
    if filename.startswith("<") and not filename.startswith("<ipython"):
        return "library"
    if any(place == file or place in file.parents for place in _NAMED):
        return "user"
    if _NETDFL in file.parents:
        return "netdfl"
    return "library" if _is_installed(file) or not file.is_file() else "user"  # compiled code names files of its maker


def _is_installed(file: Path) -> bool:
    return any(place in file.parents for place in _installed())


@cache
def _installed() -> tuple[Path, ...]:
    """Return the folders of Python, its packages, and the commands that came with them."""
    paths = [*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()]
    keep = {"include", "platinclude", "data"}
    skipped = {sysconfig.get_paths()[name] for name in keep}
    return tuple(Path(path).resolve() for path in paths if path not in skipped)
