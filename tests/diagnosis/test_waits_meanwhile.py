"""Waits do not grow long while the supervisor waits for a node that does not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.supervisor import probing
from tests.diagnosis.told_stalls import Told


async def test_waits_do_not_grow_long_while_the_supervisor_waits_for_who_does_not_answer(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probing, "ANSWER_S", 0.01)
    assert not await Told(tmp_path).probes.look()
