"""A run's figures as TensorBoard's event files, after the run or while it goes on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Protocol, Self

from netdfl.core.errors import InputError
from netdfl.exports.scalars import missing, points
from netdfl.record.run import Run
from netdfl.record.status import FleetStatus

FOLDER = "tensorboard"
EVERY_S = 5.0
SHARE = 0.02
"""How much of a run's time may go into following it."""


class Display(Protocol):
    """Something that shows a fleet while it runs, as `netdfl.running.display`."""

    def update(self, status: FleetStatus) -> None:
        """Show the fleet as it is now."""
        ...

    def note(self, text: str) -> None:
        """Show a piece of news."""
        ...


class TensorBoardWriter:
    """Writes the points of one run that it has not written yet."""

    def __init__(self, run: Run, folder: Path) -> None:
        """Write event files into `folder`. Raises InputError where tensorboardX is not installed."""
        self._run = run
        self._writer: Any = _open(folder)
        self._written: set[tuple[str, int]] = set()
        self._writer.add_text("scenario", f"```yaml\n{run.scenario_text}\n```", 0)

    def catch_up(self, below: int | None = None) -> int:
        """Write what is new; means over nodes of the rounds `below` only. How many points there were."""
        count = 0
        for point in points(self._run, below):
            if (point.curve, point.round) not in self._written:
                self._written.add((point.curve, point.round))
                self._writer.add_scalar(point.curve, point.value, point.round, walltime=point.at_s)
                count += 1
        self._writer.flush()
        return count

    def close(self) -> None:
        """Nothing more will come."""
        self._writer.close()


class Following:
    """A display around another, which writes event files while the fleet runs."""

    def __init__(self, run: Run, folder: Path, display: Display) -> None:
        """Follow `run`, whose record is being written, into `folder`. Raises InputError; see `TensorBoardWriter`."""
        self._display = display
        self._writer = TensorBoardWriter(run, folder)
        self._again_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Write what is left."""
        try:
            self._writer.catch_up()
        finally:
            self._writer.close()

    def update(self, status: FleetStatus) -> None:
        """Show the fleet, and write what is new, a few times a minute at most."""
        self._display.update(status)
        began_s = time.monotonic()
        if began_s >= self._again_s:
            self._writer.catch_up(below=status.rounds_done)
            took_s = time.monotonic() - began_s
            self._again_s = began_s + max(EVERY_S, took_s / SHARE)

    def note(self, text: str) -> None:
        """Show a piece of news."""
        self._display.note(text)


def write_tensorboard(run: Run, folder: Path) -> Path:
    """Write all of `run` into `folder`. Raises InputError where tensorboardX is not installed."""
    writer = TensorBoardWriter(run, folder)
    writer.catch_up()
    writer.close()
    return folder


def _open(folder: Path) -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise missing("tensorboardX", "tensorboard") from error
    try:
        return SummaryWriter(str(folder))
    except OSError as error:
        raise InputError(f"{folder} can't be written: {error.strerror}") from error
