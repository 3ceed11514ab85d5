"""A full disk is named, and the rows are kept for a later flush."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from netdfl.core.errors import RunError
from netdfl.record.store import StoreWriter


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_full_disk_is_named_and_the_rows_are_kept_for_a_later_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store/metrics-fleet.jsonl"
    monkeypatch.setattr("netdfl.record.store.open_whole", lambda path: os.open("/dev/full", os.O_WRONLY))
    writer = StoreWriter(tmp_path, "fleet")
    writer.metrics(0, None, 0, {"test_loss": 1.0})
    with pytest.raises(RunError, match=r"metrics-fleet\.jsonl: No space left"):
        writer.flush()
    monkeypatch.undo()
    writer._metrics._fd = os.close(writer._metrics._fd or 0)
    writer.close()
    assert [row["value"] for row in lines(path)] == [1.0]
