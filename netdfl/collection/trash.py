"""The removal of runs: they are moved into the folder `.trash`, from which they can be moved back by hand."""

from __future__ import annotations

import os
from pathlib import Path

from netdfl.collection.finding import run_within
from netdfl.collection.rows import NAMED
from netdfl.core.errors import InputError
from netdfl.core.files import PRIVATE
from netdfl.record.directory import hold, point_latest

TRASH = ".trash"


def throw_away(path: Path, root: Path) -> Path:
    """Move a run of the folder `root` to `root/.trash`, and return its new place.

    The link `latest` beside the run then points at the newest run that is left. The readable link that a sweep made to
    the run is removed.

    Raises:
        InputError: The run is still running, lies outside of the folder, or is the folder; or the disk refuses.
    """
    run = run_within(path, root)
    folder = root.resolve()
    target = _free(folder / TRASH / run.relative_to(folder))
    for each in target.parents:
        if each.is_symlink() and folder in each.parents:
            raise InputError(f"{each} is a link; remove it, so that nothing is moved out of {root}")
    with hold(run):
        try:
            target.parent.mkdir(PRIVATE, parents=True, exist_ok=True)
            os.rename(run, target)
            point_latest(run)
            _remove_name(run, folder)
        except OSError as error:
            raise InputError(f"{path} can't be moved to {target}: {error.strerror}") from error
    return target


def _remove_name(gone: Path, folder: Path) -> None:
    """Remove the readable links of a sweep to its removed run `gone`, if they lie within `folder`."""
    links = gone.parent.with_name(NAMED)
    if folder not in links.parents or links.is_symlink() or not links.is_dir():
        return
    for link in list(links.iterdir()):
        if link.is_symlink() and os.readlink(link) == f"../{gone.parent.name}/{gone.name}":
            link.unlink()


def _free(target: Path) -> Path:
    number = 1
    while True:
        path = target if number == 1 else target.with_name(f"{target.name}-{number}")
        if not path.exists() and not path.is_symlink():
            return path
        number += 1
