"""An exploration on disk: a line for every run that ended, so that what was interrupted goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from netdfl.core.errors import InputError, RunError
from netdfl.core.files import open_append, read_plain, write_whole, writing
from netdfl.explore.pool import Ran
from netdfl.explore.trial import Trial

RUNS, SETTINGS = "runs.jsonl", "settings.json"
_TRIAL, _RAN = TypeAdapter(Trial), TypeAdapter(Ran)
"""The two halves of a line."""
KEPT = "; what was found is kept"


class Journal:
    """The folder of an exploration with these settings."""

    def __init__(self, folder: Path, settings: dict[str, object], *earlier: dict[str, object]) -> None:
        """Make the folder, or go on in it, whose settings may be written as `earlier` versions wrote them.

        Raises InputError where it is of another exploration, or can't be.
        """
        self.folder = folder
        with writing(folder, more="; name another with --out DIR"):
            folder.mkdir(parents=True, exist_ok=True)
            self._check(settings, earlier)
            self._fd = open_append(folder / RUNS)

    def _check(self, settings: dict[str, object], earlier: Sequence[dict[str, object]]) -> None:
        file = self.folder / SETTINGS
        if file.exists():
            before = json.loads(read_plain(file))
            held = next((each for each in earlier if each.items() <= before.items()), settings)
            changed = [key for key, value in held.items() if before.get(key) != value]
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
        line = asdict(trial) | asdict(ran) | {"features": sorted(ran.features)}
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
                yield _TRIAL.validate_json(line), _RAN.validate_json(line)
            except ValidationError as error:
                raise InputError(f"{self.folder / RUNS}:{place} is damaged; delete the folder to begin anew") from error

    def write(self, name: str, text: str) -> Path:
        """Write a file beside the runs. Raises RunError on a full disk."""
        path = self.folder / name
        with writing(path, RunError, KEPT):
            write_whole(path, text.encode())
        return path

    def close(self) -> None:
        """Nothing more will come."""
        os.close(self._fd)
