"""The blame of a run on its page, as `netdfl blame` kept it: the table, and lanes of both runs for its first rows."""

from __future__ import annotations

from netdfl.record.kept_blame import kept_blame
from netdfl.record.run import Run
from netdfl.report.data.frame import Made


def blame(run: Run) -> Made | None:
    """Return the kept blame of `run`, its bars as numbers of `BARS`; None if there is none."""
    found = kept_blame(run)
    return None if found is None else {**found}
