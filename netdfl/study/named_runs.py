"""Names of a sweep's runs that a person reads, as links to the cells, which are named by what they are."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from netdfl.study.cells import Ran
from netdfl.study.plan import Cell


def name_run(cell: Cell) -> str:
    """The name of a cell's run: `dfedavg_loss-10%_seed-0`."""
    values = [value if _is_word(value) else f"{path.rpartition('.')[2]}-{value}" for path, value in cell.values]
    plain = [re.sub(r"[^\w.%+]+", "-", each).strip("-") for each in (cell.case, *values, f"seed-{cell.seed}")]
    return "_".join(filter(None, plain))[:200]


def link_runs(ran: Sequence[Ran], folder: Path) -> None:
    """Make `folder` with a link to each run that left something, beside those that are there."""
    folder.mkdir(parents=True, exist_ok=True)
    for each in ran:
        if not each.failed:
            link = folder / name_run(each.cell)
            link.unlink(missing_ok=True)
            link.symlink_to(os.path.relpath(each.path, folder), target_is_directory=True)


def _is_word(value: str) -> bool:
    return bool(re.match(r"[A-Za-z]", value)) and value not in ("true", "false", "none", "null")
