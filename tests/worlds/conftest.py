"""gRPC's own log is silenced before its core starts."""

from __future__ import annotations

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
