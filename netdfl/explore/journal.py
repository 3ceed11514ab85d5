"""The journal of an exploration on disk: one line per run, so that a search can be continued."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from netdfl.core.errors import InputError, RunError
from netdfl.core.files import OTHER_OUT, open_whole, read_plain, write_whole, writing
from netdfl.explore.pool import TrialResult
from netdfl.explore.trial import Trial

RUNS, SETTINGS, VERSION, SOURCES = "runs.jsonl", "settings.json", "netdfl", "sources"
_TRIAL, _RAN = TypeAdapter(Trial), TypeAdapter(TrialResult)
"""JSON converters for the two halves of a line of the exploration's journal: the trial, and its result."""
KEPT = "; what was found is kept"


class Journal:
    """The journal of an exploration, a file in its folder with a line for each trial and its result."""

    def __init__(self, folder: Path, settings: dict[str, object], *earlier: dict[str, object]) -> None:
        """Create the folder, or continue in it if it has the same `settings`.

        `earlier` are these settings as earlier netdfl versions would store them. A journal of another version is
        renamed, and its trials are run again.
        Raises InputError if the folder belongs to another exploration, or can't be used.
        """
        self.folder = folder
        with writing(folder, more=OTHER_OUT):
            folder.mkdir(parents=True, exist_ok=True)
            self._check(settings, earlier)
            self._fd = open_whole(folder / RUNS)

    def _check(self, settings: dict[str, object], earlier: Sequence[dict[str, object]]) -> None:
        file = self.folder / SETTINGS
        if file.exists():
            before = json.loads(read_plain(file))
            changed = min((_differing(before, each) for each in (settings, *earlier)), key=len)
            if changed == [VERSION]:
                self._set_aside(str(before.get(VERSION)))
            elif changed:
                raise InputError(
                    f"{self.folder} is of another exploration ({', '.join(changed)} differs): the scenario, its files "
                    "or the seed have changed since; name another with --out DIR"
                )
        elif any(self.folder.iterdir()):
            raise InputError(f"{self.folder} is not empty, and is no exploration; name another with --out DIR")
        write_whole(file, (json.dumps(settings, indent=1) + "\n").encode())

    def _set_aside(self, version: str) -> None:
        """Rename the journal of another netdfl version, whose runs may differ."""
        runs = self.folder / RUNS
        if runs.exists():
            runs.replace(self.folder / f"runs-{re.sub(r'[^0-9.]', '', version)}.jsonl")

    def add(self, trial: Trial, ran: TrialResult) -> None:
        """Append the result of a trial. Raises RunError on a full disk."""
        line = asdict(trial) | asdict(ran) | {"features": sorted(ran.features)}
        with writing(self.folder / RUNS, RunError, KEPT):
            os.write(self._fd, (json.dumps(line, separators=(",", ":")) + "\n").encode())

    def read(self) -> Iterator[tuple[Trial, TrialResult]]:
        """Yield the stored trials and results. Raises InputError for a damaged line."""
        for place, line in enumerate(read_plain(self.folder / RUNS).splitlines(), start=1):
            try:
                yield _TRIAL.validate_json(line), _RAN.validate_json(line)
            except ValidationError as error:
                raise InputError(f"{self.folder / RUNS}:{place} is damaged; delete the folder to begin anew") from error

    def write(self, name: str, text: str) -> Path:
        """Write a file next to the journal. Raises RunError on a full disk."""
        path = self.folder / name
        with writing(path, RunError, KEPT):
            write_whole(path, text.encode())
        return path

    def close(self) -> None:
        """Close the journal's file."""
        os.close(self._fd)


def _differing(before: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """Return the names of settings that differ from the stored ones, `before`, and of sources edited since then."""
    was, now = before.get(SOURCES, {}), settings[SOURCES]
    return [
        *(key for key in settings if key != SOURCES and before.get(key) != settings[key]),
        *(name for name in was if now.get(name, was[name]) != was[name]),
    ]
