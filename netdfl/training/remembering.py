"""A cache on disk of the results of model trials: a small file for each, named by a hash of its inputs.

A model trial compares netdfl's ways of computing a model's gradients with plain PyTorch (`netdfl.training.trial`).
Files lie in `netdfl/trials` of the user's cache (`XDG_CACHE_HOME`, else `~/.cache`). A process that can't write there
keeps its own cache, a damaged file counts as missing, and two processes that write one file write the same contents.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import os
import select
import signal
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn

MOST = 1000
"""The most results of model trials that are cached; beyond it the oldest half is deleted."""
LONGEST_S = 60
"""The time limit in seconds of a model trial in a process of its own."""
_PACKAGE = Path(__file__).resolve().parents[1]
OF_THIS_PROCESS: dict[str, list[str]] = {}
"""The results of the model trials that this process has run or read from disk, by their keys."""


def folder() -> Path:
    """Return the folder in which results of model trials are cached."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "netdfl" / "trials"


def known(key: str) -> list[str] | None:
    """Return the cached result of the model trial `key`; None if there is none.

    The result is a list of the ways of computing a model that differed from plain PyTorch.
    """
    if key not in OF_THIS_PROCESS:
        with suppress(OSError, ValueError, TypeError, KeyError, RuntimeError):
            found = json.loads((folder() / key).read_text(encoding="utf-8"))["differs"]
            if isinstance(found, list) and all(isinstance(each, str) for each in found):
                OF_THIS_PROCESS[key] = found
    return OF_THIS_PROCESS.get(key)


def remember(key: str, differs: list[str]) -> None:
    """Cache the result of the model trial `key` in this process and, if possible, on disk.

    `differs` are the ways of computing the model that differ from plain PyTorch.
    """
    OF_THIS_PROCESS[key] = differs
    with suppress(OSError, RuntimeError):
        place = folder()
        place.mkdir(parents=True, exist_ok=True)
        _forget_old(place)
        number, temporary = tempfile.mkstemp(dir=place, prefix=".")
        with os.fdopen(number, "w", encoding="utf-8") as file:
            json.dump({"differs": differs}, file)
        Path(temporary).replace(place / key)


def _forget_old(place: Path) -> None:
    files = [(entry.stat().st_mtime, entry.path) for entry in os.scandir(place)]
    if len(files) > MOST:
        for _, path in sorted(files)[: len(files) // 2]:
            Path(path).unlink(missing_ok=True)


def must_be_apart() -> bool:
    """Return whether a model trial must run in a separate process, so that this one can still fork nodes.

    With a torch that is built for GPUs, a process must not fork after a trial. Asking torch whether there is a GPU
    would forbid forking, too. A process with gRPC never forks, so there the answer is no.
    """
    return (torch.version.cuda or torch.version.hip) is not None and "grpc" not in sys.modules


def apart(function: Callable[[], list[str]]) -> list[str] | None:
    """Return the result of `function` run in a separate process; None if it dies or takes over `LONGEST_S`."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        with suppress(BaseException):
            torch.set_num_threads(1)  # threads of the parent's are not here
            os.write(theirs, json.dumps(function()).encode())
        os._exit(0)
    os.close(theirs)
    with open(ours, "rb") as pipe:
        ready, _, _ = select.select([pipe], [], [], LONGEST_S)
        said = pipe.read() if ready else b""
    if not said:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return list(json.loads(said)) if said else None


def fingerprint(module: nn.Module, code: tuple[object, ...], more: str) -> str:
    """Return a hash of all that a trial's result depends on.

    It is made from the module's structure and code, the functions and classes in `code`, versions of software, and the
    text `more`. The values of parameters are left out; numbers and texts in attributes of submodules are included. Of
    a user's code the whole files are included.
    """
    found = hashlib.sha256(f"{_versions()}{module!r}{more}".encode())
    numbers: dict[int, int] = {}
    for name, tensor in (*module.named_parameters(remove_duplicate=False), *module.named_buffers()):
        which = numbers.setdefault(id(tensor), len(numbers))
        found.update(f"{name}{which}{tuple(tensor.shape)}{tensor.dtype}{tensor.requires_grad}".encode())
    for part in module.modules():
        plain = {key: value for key, value in vars(part).items() if isinstance(value, bool | int | float | str)}
        found.update(repr(sorted(plain.items())).encode())
        own = [value for value in vars(part).values() if isinstance(value, FunctionType)]
        for owner in (*type(part).__mro__, *own):
            found.update(_code(owner))
    for owner in code:
        found.update(_code(owner))
    for file in own_files():
        with suppress(OSError):
            about = os.stat(file)
            found.update(_digest(file, about.st_mtime_ns, about.st_size))
    return found.hexdigest()


@lru_cache(10_000)
def _digest(file: str, changed_ns: int, size: int) -> bytes:
    """Return a hash of a file's contents, cached for as long as its modification time and size stay the same."""
    return hashlib.sha256(Path(file).read_bytes()).digest()


@cache
def _versions() -> str:
    """Return as text the versions of torch and Python, and netdfl's training files with their sizes and times."""
    files = (
        (file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in (_PACKAGE / "training").rglob("*.py")
    )
    return f"{torch.__version__}{sys.version}{sorted(files)}"


def own_files() -> list[str]:
    """Return the files of loaded modules that are a user's own."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return sorted(file for file in files if isinstance(file, str) and not file.startswith(_of_others()))


@cache
def _of_others() -> tuple[str, ...]:
    """Return the folders of netdfl, of Python's library and of installed packages."""
    paths = sysconfig.get_paths()
    return (str(_PACKAGE), *(paths[name] for name in ("stdlib", "purelib", "platlib")))


def _code(owner: Any) -> bytes:
    """Return the code of a function, or of a class's functions; empty for Python's, torch's or netdfl's."""
    name = getattr(owner, "__module__", "") or ""
    if name.partition(".")[0] in ("builtins", "torch", "netdfl"):
        return b""
    inside = list(vars(owner).values()) if isinstance(owner, type) else [owner]
    return b"".join(marshal.dumps(code) for code in _codes(inside))


def _codes(values: list[Any]) -> Iterator[CodeType]:
    for value in values:
        code = getattr(getattr(value, "__func__", value), "__code__", None)
        if isinstance(code, CodeType):
            yield code
