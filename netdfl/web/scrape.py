"""The metrics for Prometheus of the runs in a folder that are still running, read again after some seconds.

The time between two readings is so long that reading takes only a small share of a processor.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

from netdfl.core.errors import InputError
from netdfl.core.files import writing
from netdfl.exports.metrics import MetricValues, metrics_text, read_figures
from netdfl.web.folder import RunFolder

LEAST_S = 2.0
SHARE = 0.02
"""The largest share of one processor that reading runs may take, however often somebody asks for metrics."""
LEAST_TOKEN, MOST_TOKEN = 16, 1000


class MetricsFeed:
    """The metrics of the runs in a folder as text, which is kept for two seconds or more before it is made anew."""

    def __init__(self, folder: RunFolder) -> None:
        """Prepare to read the runs of `folder`."""
        self._folder = folder
        self._text, self._again = b"", 0.0

    def text(self) -> bytes:
        """Return the metrics of the runs that are still running.

        If the server shows a single run and no folder, that run has metrics after its end, too.
        """
        if not self._text or time.monotonic() >= self._again:
            began = time.process_time()
            self._text = metrics_text(self._read())
            self._again = time.monotonic() + max(LEAST_S, (time.process_time() - began) / SHARE)
        return self._text

    def _read(self) -> list[MetricValues]:
        found = []
        for place, path in self._folder.going_on():
            try:
                found.append(read_figures(path, place))
            except InputError:
                continue  # its page says what is damaged
        return found


def bearer_token(file: Path) -> str:
    """Return the token in `file`. If there is no such file, write a new token to it, readable only by its owner.

    Raises InputError if the file holds no token, or can't be read or written.
    """
    if not file.exists():
        token = secrets.token_urlsafe(32)
        with writing(file), os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(f"{token}\n")
        return token
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} can't be read: {error}; name another with --metrics FILE") from error
    if not LEAST_TOKEN <= len(token) <= MOST_TOKEN or not token.isprintable() or " " in token:
        raise InputError(
            f"{file} holds no token: expected one line of {LEAST_TOKEN} letters or more; remove it, and it is made anew"
        )
    return token
