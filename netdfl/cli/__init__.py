"""The command line: a table of commands, each of which imports its modules only when it is called.

A new command is a function in a module of its own here, and a row of `netdfl.cli.commands.COMMANDS`.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
import traceback
from collections.abc import Callable
from functools import partial

from netdfl.cli.commands import make_app
from netdfl.core.errors import InputError, NetdflError
from netdfl.core.whose import theirs

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Numbers of errors on writing to a disk that is full or read-only."""


def main() -> None:
    """Run the command line on the arguments of this process, and exit."""
    gc.set_threshold(50_000, 20, 20)  # what is imported stays: looking through it costs a tenth
    _guarded(partial(make_app(), prog_name="netdfl"))


def _guarded(app: Callable[[], object]) -> None:
    """Run `app` and exit. Errors become lines on stderr and an exit code, never a stack trace."""
    try:
        app()
    except InputError as exc:
        code = _failed(str(exc), 2)
    except NetdflError as exc:
        code = _failed(str(exc), 4)
    except KeyboardInterrupt:
        code = _failed("interrupted", 130)
    except SystemExit as exc:
        if _is_of_typer(exc) or (told := theirs(exc)) is None:
            raise
        code = _failed(f"{told}; let it return or raise an error", 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as exc:
        code = _failed_unexpectedly(exc)
    sys.exit(code)


def _is_of_typer(exit: SystemExit) -> bool:
    """Return whether Typer, and not a user's own code, raised `exit`, as when a command ends normally."""
    *_, (frame, _) = traceback.walk_tb(exit.__traceback__)
    return str(frame.f_globals["__name__"]).partition(".")[0] == "typer"


def _failed_unexpectedly(error: Exception) -> int:
    """Print an error of the disk, of a user's own code (with its place), or inside netdfl; return the exit code.

    With NETDFL_TRACEBACK in the environment, raise `error` instead.
    """
    if os.environ.get("NETDFL_TRACEBACK"):
        raise error
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        what = f"{error.filename or 'a file'} can't be written: {error.strerror}"
        return _failed(f"{what}; make room there, or have it written elsewhere", 4)
    if (told := theirs(error)) is not None:
        return _failed(f"{told}; NETDFL_TRACEBACK=1 shows all of it", 2)
    if isinstance(error, ExceptionGroup):
        return _failed_together(error)
    return _failed(f"internal error: {type(error).__name__}: {error} (NETDFL_TRACEBACK=1 shows where)", 4)


def _failed_together(group: ExceptionGroup[Exception]) -> int:
    """Print the first error of several nodes, and the number of other errors; return the exit code."""
    leaves: list[Exception] = []
    left: list[Exception] = [group]
    while left:
        each = left.pop(0)
        left += each.exceptions if isinstance(each, ExceptionGroup) else []
        leaves += [] if isinstance(each, ExceptionGroup) else [each]
    first, more = leaves[0], f" (and {len(leaves) - 1} more)" if leaves[1:] else ""
    if isinstance(first, NetdflError):
        return _failed(f"{first}{more}", 2 if isinstance(first, InputError) else 4)
    return _failed(f"internal error: {type(first).__name__}: {first}{more} (NETDFL_TRACEBACK=1 shows where)", 4)


def _failed(text: str, code: int) -> int:
    print(text, file=sys.stderr)
    return code
