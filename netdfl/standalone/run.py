"""Run a node that nobody looks after, as `netdfl node` does. What loads torch and grpc is imported here, late."""

from __future__ import annotations

import os
import signal
from types import FrameType

from netdfl.standalone.request import Request


def run_node(request: Request) -> int:
    """Run the node to the end of its run, or until SIGTERM or Ctrl-C; return the exit code.

    Raises:
        InputError: it could not begin, with the reason: data missing, a port in use, nodes that did not come.
    """
    signal.signal(signal.SIGTERM, _interrupted)  # process 1 of a container has no default of its own
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from netdfl.standalone.node import live

    return live(request)


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
