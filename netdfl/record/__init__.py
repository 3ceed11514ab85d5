"""What a run leaves: rows in a store, files in a directory, and the result with its verdict."""

from __future__ import annotations

from netdfl.record.directory import RunDirectory
from netdfl.record.run import Run, open_run
from netdfl.record.store import StoreWriter

__all__ = ["Run", "RunDirectory", "StoreWriter", "open_run"]
