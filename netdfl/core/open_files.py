"""How many files a process may have open at once: a fleet of real nodes needs a connection for each link, and more."""

from __future__ import annotations

import resource


def allow_open_files() -> int:
    """Let this process, and those that it starts, open as many files as its user may; how many that is."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most
