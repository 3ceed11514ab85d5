"""The ring's data, in processes that note the CPU time of each look at `/proc` for the table of resources."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ring_data import blobs as data

from netdfl.record.resources import ResourceLog
from netdfl.training.data.dataset import Dataset


def blobs(root: Path, /, *, notes: str) -> Dataset:
    """The ring's data; this process and those that are forked from it note their looks in the folder `notes`."""
    note_looks(Path(notes))
    return data(root)


def note_looks(folder: Path) -> None:
    """Write the CPU seconds of each look from now on into a file of this process in `folder`."""
    take = ResourceLog.take
    if take.__module__ == __name__:
        return

    def noted(log: ResourceLog) -> None:
        began = time.thread_time()
        take(log)
        spent = time.thread_time() - began
        with (folder / str(os.getpid())).open("a") as file:
            file.write(f"{spent:.9f}\n")

    ResourceLog.take = noted  # type: ignore[assignment,method-assign]


def noted_looks(folder: Path) -> list[float]:
    """The CPU seconds of all looks that were noted in `folder`."""
    return [float(line) for file in folder.iterdir() for line in file.read_text().splitlines()]
