"""The modules that the fork server imports before it forks, so that children share them: all but grpc."""

from __future__ import annotations

import importlib
from contextlib import suppress

MODULES = (
    "torch",
    "safetensors.torch",
    "msgpack",
    "xxhash",
    "uvloop",
    "google.protobuf",
    "netdfl.host.blueprint",
    "netdfl.host.plan",
    "netdfl.host.judging",
    "netdfl.host.node",
    "netdfl.host.network",
    "netdfl.host.apart",
    "netdfl.links.schedule.returns",
    "netdfl.transport.grpc.chunks",
    "netdfl.transport.control.codec",
    "netdfl.transport.security.identity",
    "netdfl.algorithms.parts",
    "netdfl.record.store",
    "netdfl.transport.wire",
)


def warm() -> None:
    """Import the modules, skipping those that are not installed, such as uvloop or torch."""
    for name in MODULES:
        with suppress(ModuleNotFoundError):
            importlib.import_module(name)
    with suppress(ModuleNotFoundError):
        import torch

        torch.set_num_threads(1)
