"""Modules that the fork server imports before it forks, so that child processes share their memory.

The package grpc is left out, as it must not be imported before a fork.
"""

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
    "netdfl.core.noticed",
    "netdfl.core.process",
    "netdfl.core.versions",
    "netdfl.host.blueprint",
    "netdfl.host.plan",
    "netdfl.host.judging",
    "netdfl.host.node",
    "netdfl.host.network",
    "netdfl.host.apart",
    "netdfl.links.schedule.returns",
    "netdfl.training.service",
    "netdfl.transport.grpc.chunks",
    "netdfl.transport.grpc.receipts",
    "netdfl.transport.control.codec",
    "netdfl.transport.security.callers",
    "netdfl.transport.security.departures",
    "netdfl.transport.security.identity",
    "netdfl.transport.security.secret",
    "netdfl.transport.security.visitors",
    "netdfl.transport.shared_memory.buffers",
    "netdfl.transport.v1.meeting_pb2",
    "netdfl.algorithms.parts",
    "netdfl.record.resources",
    "netdfl.record.store",
    "netdfl.transport.wire",
    "numpy.ctypeslib",  # for what safetensors writes
)


def warm() -> None:
    """Import all of `MODULES`, except for those that are not installed, such as uvloop or torch."""
    for name in MODULES:
        with suppress(ModuleNotFoundError):
            importlib.import_module(name)
    with suppress(ModuleNotFoundError):
        import torch

        torch.set_num_threads(1)
