"""An exploration on disk: a line for every run that ended, so that what was interrupted goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from netdfl.core.errors import InputError, RunError
from netdfl.core.files import open_append, read_plain, write_whole, writing
from netdfl.explore.cause import Cause
from netdfl.explore.pool import Ran
from netdfl.explore.trial import Trial

RUNS, SETTINGS = "runs.jsonl", "settings.json"
Hash32 = Annotated[int, Field(ge=0, lt=1 << 32)]


class Line(TypedDict):
    """A run, as a line of `runs.jsonl`."""

    number: Annotated[int, Field(ge=0)]
    events: list[dict[str, object]]
    luck: int | None
    parent: int | None
    narrow: bool
    cause: list[str] | None
    features: list[Hash32]
    event_log_hash: str
    refused: str
    broke: str


_LINE: TypeAdapter[Line] = TypeAdapter(Line)
KEPT = "; what was found is kept"


class Journal:
    """The folder of an exploration with these settings."""

    def __init__(self, folder: Path, settings: dict[str, object]) -> None:
        """Make the folder, or go on in it. Raises InputError where it is of another exploration, or can't be."""
        self.folder = folder
        with writing(folder, more="; name another with --out DIR"):
            folder.mkdir(parents=True, exist_ok=True)
            self._check(settings)
            self._fd = open_append(folder / RUNS)

    def _check(self, settings: dict[str, object]) -> None:
        file = self.folder / SETTINGS
        if file.exists():
            before = json.loads(read_plain(file))
            changed = [key for key, value in settings.items() if before.get(key) != value]
            if changed:
                raise InputError(
                    f"{self.folder} is of another exploration ({', '.join(changed)} differs): the scenario, its parts "
                    "or the seed have changed since; name another with --out DIR"
                )
        elif any(self.folder.iterdir()):
            raise InputError(f"{self.folder} is not empty, and is no exploration; name another with --out DIR")
        write_whole(file, (json.dumps(settings, indent=1) + "\n").encode())

    def add(self, trial: Trial, ran: Ran) -> None:
        """Keep what came of a trial. Raises RunError on a full disk."""
        line = asdict(trial) | {
            "cause": None if ran.cause is None else list(ran.cause),
            "features": sorted(ran.features),
            "event_log_hash": ran.event_log_hash,
            "refused": ran.refused,
            "broke": ran.broke,
        }
        with writing(self.folder / RUNS, RunError, KEPT):
            os.write(self._fd, (json.dumps(line, separators=(",", ":")) + "\n").encode())

    def read(self) -> Iterator[tuple[Trial, Ran]]:
        """What was kept before; a torn last line is left out. Raises InputError for what is no such line."""
        text = read_plain(self.folder / RUNS)
        whole = text[: text.rfind("\n") + 1]
        if len(whole) != len(text):
            os.ftruncate(self._fd, len(whole.encode()))
        for place, line in enumerate(whole.splitlines(), start=1):
            try:
                found = _LINE.validate_json(line)
            except ValidationError as error:
                raise InputError(f"{self.folder / RUNS}:{place} is damaged; delete the folder to begin anew") from error
            yield _read(found)

    def write(self, name: str, text: str) -> Path:
        """Write a file beside the runs. Raises RunError on a full disk."""
        path = self.folder / name
        with writing(path, RunError, KEPT):
            write_whole(path, text.encode())
        return path

    def close(self) -> None:
        """Nothing more will come."""
        os.close(self._fd)


def _read(line: Line) -> tuple[Trial, Ran]:
    trial = Trial(line["number"], tuple(line["events"]), line["luck"], line["parent"], line["narrow"])
    cause = None if line["cause"] is None else Cause(*line["cause"])
    features = frozenset(line["features"])
    return trial, Ran(trial.number, cause, features, line["event_log_hash"], line["refused"], line["broke"])
