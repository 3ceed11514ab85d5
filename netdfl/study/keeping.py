"""The data that the run of a published table's cell stores besides its result, and the rows that its record omits.

Such a run stores the average model (and the nodes' own models if they are small), the average model's metrics on the
training data, the commit of netdfl's source, and the CPU time. No number in a table depends on single messages, so only
totals by link and round are recorded. These are options of the run: neither the name of the cell nor its event log
depends on them.
"""

from __future__ import annotations

import json
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from netdfl.core.errors import InputError, RunError
from netdfl.core.files import PACKAGE, write_whole, writing
from netdfl.core.types import Json
from netdfl.record.plain_json import dump_json
from netdfl.scenario.model.schema import Recording, Scenario

Manner: TypeAlias = Literal["whole", "published", "background"]
"""The options of a study's runs.

`whole`: with the whole record. `published`: as for a published table. `background`: the same, within a limit of CPU
time and without checkpoints.
"""
FINISHED = (0, 1, 3)
"""Exit codes of runs that count as finished, so that they are not made again."""
MOST_CPU_S = 3600
"""The most CPU time in s that a run of the background work may take."""
CELL = "cell.json"
"""The file in a run directory with the data that is stored besides `result.json`."""
MOST_MODELS = 128 << 20
"""The most bytes of all nodes' own models together; larger ones are not stored beside their average."""
_GIT_S = 20


def as_published(scenario: Scenario) -> Scenario:
    """Return `scenario` with the recording options for a run behind a cell of a published table.

    The run keeps its models, and records messages as totals by link and round.
    """
    evaluation = scenario.evaluation.model_copy(update={"keep_models": True})
    return scenario.model_copy(update={"evaluation": evaluation, "record": Recording(messages="per_link")})


def keep(path: Path) -> None:
    """Store the average model of a run for a published table, and in `cell.json` its metrics, commit and CPU time.

    Both go into the run's directory `path`; this process must have made the run. If there is no average model (no node
    has a model, or all push-sum weight is gone), `cell.json` has the reason, as `not_kept`, in place of metrics.

    Raises RunError if the disk refuses.
    """
    from netdfl.running.models import open_run

    run = open_run(path)
    found: dict[str, object] = {"commit": source_commit()}
    try:
        run.keep_average(MOST_MODELS)
        found |= run.train_figures()
    except InputError as error:
        found["not_kept"] = str(error)
    found["cpu_s"] = time.process_time()
    with writing(path / CELL, RunError):
        write_whole(path / CELL, (dump_json(found) + "\n").encode())


def kept(path: Path) -> Json:
    """Return the data that `keep` stored for the run in the directory `path`; empty if there are none."""
    try:
        found = json.loads((path / CELL).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@cache
def source_commit() -> str:
    """Return the commit of netdfl's source, with a `+` if the source was changed since; empty outside a clone."""
    try:
        known = _git("ls-files", "--error-unmatch", "__init__.py") and _git("rev-parse", "HEAD")
        return known[:12] + ("+" if _git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=PACKAGE, capture_output=True, text=True, check=True, timeout=_GIT_S)
    return done.stdout.strip()
