"""The run directory, made by the supervisor, and its lock: one process writes at a time."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from netdfl.core.errors import InputError, RunError
from netdfl.core.files import PRIVATE, check_name, empty_folder, open_append, write_whole, writing
from netdfl.record.plain_json import dump_json
from netdfl.record.store import STORE

CHECKPOINTS = "checkpoints"
EVENTS = "events.jsonl"
LOCK = ".lock"
TIMES, MOMENT_S = 4, 0.05
"""How often to try to get a lock, and the seconds between two tries.

Another process that calls `is_held` holds the lock for a moment.
"""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The directory to which one run writes. Each file outside the store appears complete or not at all.

    `page`: whether the run writes a report at its end; `kept`: whether it writes anything.
    """

    path: Path
    page: bool = True
    kept: bool = True

    @classmethod
    def create(
        cls, root: Path | str, scenario_name: str, seed: int, out: Path | str | None = None, *, overwrite: bool = False
    ) -> Self:
        """Create `root/<scenario>/<UTC time>-<seed>/` and point the link `latest` at it; or create `out`.

        With `overwrite`, an ended run in `out` is removed first; any other content is kept, and refused.

        Raises:
            InputError: `out` exists and is not an empty directory, its name is not UTF-8, or nothing can be written
                there.
        """
        check_name(Path(root if out is None else out).absolute())
        try:
            if out is not None:
                if overwrite:
                    _remove_run(Path(out))
                return cls(_make_empty(Path(out)))
            _check_latest(parent := Path(root) / scenario_name)
            path = _make_new(parent, f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{seed}")
            with suppress(PermissionError):  # there are disks without links
                _point(path.parent / "latest", path.name)
        except OSError as exc:
            raise InputError(
                f"the run directory {exc.filename} can't be made: {exc.strerror}; name another with --out DIR"
            ) from exc
        return cls(path)

    @property
    def recorded(self) -> bool:
        """Whether any row has been recorded yet."""
        return any(file.stat().st_size for file in (self.path / STORE).glob("*"))

    def abandon(self) -> None:
        """Remove all files of a run that was refused, and point `latest` at the previous run again."""
        empty_folder(self.path)
        link = self.path.parent / "latest"
        if link.is_symlink() and link.resolve() == self.path:
            self.path.rmdir()
            point_latest(self.path)

    def write(self, name: str, text: str) -> Path:
        """Write the file `name` (such as `scenario.yaml`) atomically. Raises RunError if that fails."""
        target = self.path / name
        if self.kept:
            with writing(target, RunError, "; everything recorded so far is kept"):
                write_whole(target, text.encode())
        return target

    def write_json(self, name: str, value: object) -> Path:
        """Write `fleet.json`, `result.json`, `graph.json` or `partition.json` as readable JSON."""
        return self.write(name, dump_json(value, indent=1) + "\n")

    def write_events(self, events: Sequence[Mapping[str, object]]) -> Path:
        """Write the compiled list of scripted events as `events.jsonl`, one event per line."""
        return self.write(EVENTS, "".join(dump_json(event) + "\n" for event in events))


def _make_empty(path: Path) -> Path:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(
            f"the run directory {path} is not an empty directory; name a new one (--out, in Python `out`), or empty it "
            "first; in Python `overwrite=True` replaces a run that lies there"
        )
    path.mkdir(PRIVATE, parents=True, exist_ok=True)
    return path.resolve()


def _remove_run(path: Path) -> None:
    """Empty `path` if it is the directory of a finished run. Raises InputError if the run has not ended."""
    if path.is_symlink() or not all((path / name).exists() for name in (LOCK, "scenario.yaml")):
        return
    with hold(path):
        empty_folder(path)


def _make_new(parent: Path, name: str) -> Path:
    """Create `parent/name`, or `parent/name-2` and so on if another run started in this second has that name."""
    parent.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        path = parent.resolve() / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir(PRIVATE)
        except FileExistsError:
            number += 1
        else:
            return path


def _check_latest(parent: Path) -> None:
    """Raise InputError if `latest`, which should be a link to the newest run, is a folder, which looks like a run."""
    latest = parent / "latest"
    if latest.is_dir() and not latest.is_symlink():
        raise InputError(
            f"{latest} is a folder, and should be a link to the newest run: a copy that followed the link, perhaps; "
            "rename or remove it, or name a folder for the run with --out DIR"
        )


def point_latest(gone: Path) -> None:
    """Point the link `latest`, beside the removed run `gone`, at the newest run that is left; remove it if none is."""
    link = gone.with_name("latest")
    if link.is_symlink() and link.resolve() == gone:
        left = (each.name for each in gone.parent.iterdir() if not each.is_symlink() and not each.name.startswith("."))
        earlier = max(left, default="")
        _point(link, earlier) if earlier else link.unlink()


def _point(link: Path, target: str) -> None:
    temporary = link.with_name(f".latest-{os.getpid()}")
    temporary.symlink_to(target, target_is_directory=True)
    temporary.replace(link)


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold the lock of the run directory `path`; the system releases it when this process ends in any way.

    Raises:
        InputError: another process holds the lock: its run is still going on.
        RunError: the disk refuses the lock file.
    """
    with writing(path / LOCK, RunError):
        file = os.fdopen(open_append(path / LOCK), "a")
    with file:
        if not take_lock(file.fileno()):
            raise InputError(f"{path}: this run is still going on; wait until it ends, or stop it first")
        _held[path] = file.fileno()
        try:
            yield
        finally:
            del _held[path]


def take_lock(file: int) -> bool:
    """Lock an open file, unless another process holds its lock; return whether it is locked."""
    return any(map(_locked, [file] * TIMES))


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(MOMENT_S)
        return False
    return True


_held: dict[Path, int] = {}
"""The file descriptors of the locks that this process holds, by run directory."""


def place_of(path: Path) -> Path:
    """Return the current path of the run directory `path`, which may have been moved; this process must hold its lock.

    Raises RunError if it was removed.
    """
    lock = _held.get(path)
    if lock is None or _is_same(path / LOCK, lock):
        return path
    with suppress(OSError):
        moved = Path(os.readlink(f"/proc/self/fd/{lock}"))
        if _is_same(moved, lock):
            return moved.parent
    raise RunError(f"{path} was removed while the run went on: nothing of the run is left, and so it has no verdict")


def _is_same(file: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(file.stat(), os.fstat(descriptor))
    except OSError:
        return False


def is_held(path: Path) -> bool:
    """Return whether a process here holds the lock of the run directory `path`, because the run has not ended."""
    return is_locked(path / LOCK)


def is_locked(file: Path) -> bool:
    """Return whether a process on this machine holds the lock `file`."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
