"""An error in a callback breaks the run, and is a finding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import netdfl
import netdfl.testing
from netdfl.explore.cause import cause_of
from netdfl.explore.execute import Executor


def test_an_error_in_a_callback_breaks_the_run(small: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdfl.host.node.NodeHost._resume", lambda self: 1 / 0)
    run = Executor().run(netdfl.load(small | {"events": [{"at": "20ms", "for": "5ms", "pause": 1}]}))
    assert "ZeroDivisionError" in run.broke
    found = cause_of(run)
    assert found is not None
    assert found.key.startswith(f"own code ZeroDivisionError {__file__}:")
    assert Path(__file__).name in run.broke
