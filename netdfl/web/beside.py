"""A page server next to a run, in a separate process, so that pages do not slow down the run."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from netdfl.core.errors import InputError
from netdfl.core.process import end_child
from netdfl.web.serving import MISSING, show


class RunPageServer:
    """The page server of one run, started once the run's directory exists; `note` is called with the address."""

    def __init__(self, note: Callable[[str], None]) -> None:
        """Prepare the page server; `begin` starts it. Raises InputError if Starlette or uvicorn is not installed."""
        if find_spec("uvicorn") is None or find_spec("starlette") is None:
            raise InputError(MISSING)
        self._note = note
        self._process: subprocess.Popen[str] | None = None
        self._told: threading.Thread | None = None
        self.address = ""

    def begin(self, run: Path) -> None:
        """Start the server, and report its address."""
        # A session of its own: Ctrl-C is for the run, whose last words the page is to show.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "netdfl.web", str(run)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._told = threading.Thread(target=self._tell, args=(self._process,), daemon=True)
        self._told.start()

    def _tell(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        if line.startswith("http"):
            self.address = line
            self._note(f"page       {line}")
            show(line)
        elif line:
            self._note(f"there is no page: {line.removeprefix('! ')}")

    def stay(self, say: Callable[[str], None]) -> None:
        """Keep serving the page until Ctrl-C, if the terminal is interactive; `say` prints a line about it."""
        if self.address and self._process is not None and sys.stdin.isatty() and sys.stdout.isatty():
            say(f"  page       {self.address} (until Ctrl-C; report.html is the same page)")
            try:
                self._process.wait()
            except KeyboardInterrupt:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        """Stop the server once each open page has received the last data."""
        if self._process is None:
            return
        end_child(self._process, 10)
        if self._process.stdout is not None:
            if self._told is not None:
                self._told.join(1)
            self._process.stdout.close()
