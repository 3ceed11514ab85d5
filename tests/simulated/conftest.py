"""How the tests of the simulated world run their small scenario."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_scenario import Run, small

from netdfl.running.run import run


@pytest.fixture
def simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the small scenario, changed by `sets`, in a new directory; no report is drawn."""
    monkeypatch.setattr("netdfl.report.html.write_report", lambda path: path)
    count = iter(range(1000))
    return lambda *sets: run(small(*sets), out=tmp_path / f"run-{next(count)}")
