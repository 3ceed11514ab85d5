"""The results of `netdfl blame` on a run's page: a table of causes, and pictures for its first rows."""

from __future__ import annotations

from netdfl.record.kept_blame import kept_blame
from netdfl.record.run import Run
from netdfl.report.data.frame import Made


def blame(run: Run) -> Made | None:
    """Return the stored results of `netdfl blame` for `run`, which explain by causes where its time went; None if none.

    In the pictures, the kind of each bar is a number, its index in `BARS`.
    """
    found = kept_blame(run)
    return None if found is None else {**found}
