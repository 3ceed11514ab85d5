"""gRPC's own log is silenced before its core starts, and no example is timed: machines are busy."""

from __future__ import annotations

import os

from hypothesis import settings

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
