"""Safe access to folders that other users may write to: whole files, never through a link, read within bounds.

It also finds the files that ship with netdfl, and the versions of packages (None where a package is not installed).
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import BinaryIO

from netdfl.core.errors import InputError, NetdflError

PRIVATE = 0o700
"""The file mode of a run's directory: only its owner may read models and logs."""
MOST_BYTES = 1 << 28
_READ_BYTES = 1 << 16
HALF_CHARACTER = re.compile("[\ud800-\udfff]")
"""A lone surrogate, which no text in UTF-8 can hold. Python makes it of a file's name, or of `"\\ud83d"` in YAML."""
OTHER_OUT = "; name another with --out DIR"
"""The remedy where the folder of `--out` can't be made or written."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def writing(what: object, refused: type[NetdflError] = InputError, more: str = "") -> Iterator[None]:
    """Raise the error `refused` if a write fails inside the context; its text names `what` and ends with `more`."""
    try:
        yield
    except OSError as error:
        raise refused(f"{what} can't be written: {error.strerror}{more}") from error


def write_given(file: Path, text: str) -> None:
    """Write a file that the user named, whole or not at all, and the folders above it. Raises InputError."""
    with writing(file, more="; name another file, or make room"):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, text.encode())


def check_empty(folder: Path) -> None:
    """Raise InputError if `folder`, which a command will create, exists and is no empty folder."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"--out {folder} is not an empty folder; name a new one, or empty it first")


def check_name(path: Path) -> None:
    """Raise InputError if `path` is not UTF-8: then no text can name it, and DuckDB can't open it."""
    if HALF_CHARACTER.search(str(path)):
        raise InputError(f"the name of {str(path)!r} is not UTF-8; rename the folder, or choose another one")


def is_of_node(name: str, node: int) -> bool:
    """Return whether a file name in a run directory, such as `messages-003-1.jsonl`, contains the number `node`."""
    return f"{node:03d}" in name.partition(".")[0].split("-")


def write_or_check(file: Path, text: str, command: str, arguments: Sequence[str]) -> int:
    """Write the generated `text` to `file`, or with `--check` test whether it is up to date; return the exit code."""
    if list(arguments) != ["--check"]:
        file.write_text(text, encoding="utf-8")
    elif file.read_text(encoding="utf-8") != text:
        print(f"{file} is out of date; run `{command}`", file=sys.stderr)
        return 1
    return 0


def write_whole(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Write the file `path` completely or not at all; a link at `path` is replaced, not followed.

    A `durable` file survives a power cut. Raises OSError.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(temporary, _NEW, 0o644), "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_append(path: Path) -> int:
    """Open a plain file for reading and appending, creating it if needed. Raises OSError for a link."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(path, flags, 0o644)


def open_whole(path: Path) -> int:
    """Open a file of lines for appending; remove an incomplete last line that a killed process may have left.

    Raises OSError.
    """
    fd = open_append(path)
    end = os.fstat(fd).st_size
    while end > 0:
        start = max(0, end - _READ_BYTES)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end != os.fstat(fd).st_size:
        os.ftruncate(fd, end)
    return fd


def empty_folder(folder: Path, kept: Collection[str] = ()) -> None:
    """Remove everything in `folder` but what is named in `kept`; links are removed, not followed. Raises OSError."""
    for each in folder.iterdir():
        if each.name not in kept:
            shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()


def read_plain(path: Path, most: int = MOST_BYTES) -> str:
    """Return the text of a plain file of at most `most` bytes.

    Raises:
        FileNotFoundError: There is no such file.
        InputError: The file is a link, a device, too large, unreadable or no text.
    """
    try:
        return read_plain_bytes(path, most).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged: it is not text in UTF-8 ({error.reason})") from error


def read_plain_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the contents of a plain file of at most `most` bytes. Raises FileNotFoundError and InputError."""
    with _plain(path) as (file, size):
        data = file.read(min(most, max(size, 1 << 16)) + 1)  # `read` allocates as many bytes as it is asked for
    if len(data) > most:
        raise InputError(f"{path} has more than {most} bytes, and is not read")
    return data


def read_end(path: Path, most: int) -> bytes:
    """Return the last `most` bytes of a plain file of any size. Raises FileNotFoundError and InputError."""
    with _plain(path) as (file, size):
        file.seek(max(0, size - most))
        return file.read(most)


def read_from(path: Path, start: int, most: int) -> bytes:
    """Return up to `most` bytes of a plain file from byte `start` on. Raises FileNotFoundError and InputError."""
    with _plain(path) as (file, _):
        file.seek(start)
        return file.read(most)


@contextmanager
def _plain(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Yield a plain file, open for reading, and its size in bytes. Raises FileNotFoundError and InputError."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise InputError(f"{path} is no plain file, and is not read")
            yield file, found.st_size
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{path} can't be read as a plain file: {error.strerror}") from error


def check_plain(folder: Path) -> None:
    """Check that nothing in `folder`, at any depth, is a link, a pipe or a device.

    Access through such a file would read, write or wait elsewhere. A socket is permitted, because no code opens it.

    Raises:
        InputError: A file is of another kind; the text names it.
    """
    for path, mode in _modes(folder):
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISSOCK(mode)):
            what = "a link" if stat.S_ISLNK(mode) else "no plain file"
            raise InputError(f"{path} is {what}; netdfl writes plain files only, so remove it if you trust the rest")


def _modes(folder: Path) -> Iterator[tuple[Path, int]]:
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
            yield Path(entry.path), mode
            if stat.S_ISDIR(mode):
                yield from _modes(Path(entry.path))
        except FileNotFoundError:
            continue  # a run that is not over replaces its files


PACKAGE = Path(__file__).resolve().parents[1]


def shipped(folder: str) -> Path:
    """Return a `folder` that ships with netdfl, such as `scenarios`: in the repository, or in the installed wheel."""
    inside = PACKAGE / "shipped" / folder
    return inside if inside.is_dir() else PACKAGE.parent / folder


@cache
def version_of(package: str) -> str | None:
    """Return the installed version of `package`, as this process first found it; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def literal_path(path: str | Path) -> str:
    """Return a path for DuckDB, which takes names for patterns: what is special in a glob pattern is escaped."""
    return str(path).replace("[", "[[]").replace("*", "[*]").replace("?", "[?]")
