"""Unnamed Linux network namespaces, which exist as long as a process holds their file descriptor.

They have no files, so there is nothing to clean up: a namespace, and every device in it,
ends with the process that holds it and the processes that entered it, however those end.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from netdfl.core.errors import MachineError

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_REMEDY = "run it as root or with CAP_SYS_ADMIN and CAP_NET_ADMIN, or run it --on processes or --on simulated"


def new_namespace() -> int:
    """Create a namespace; return a file descriptor that holds it. Raises MachineError without the privilege."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_unshare).result()


def leave_host() -> None:
    """Move this thread into a new namespace, so that no mistake can affect the host's network."""
    _checked("unshare", _CLONE_NEWNET)


def inside(namespace: int, function: Callable[[], T]) -> T:
    """Call `function` in a thread inside `namespace`; a socket that `function` opens stays in that namespace."""

    def call() -> T:
        _checked("setns", namespace, _CLONE_NEWNET)
        return function()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


def enter(path: str) -> None:
    """Move this thread, and threads it starts later, into the namespace at `path`. Raises MachineError."""
    try:
        namespace = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise MachineError(f"the network namespace {path} can't be entered: {error.strerror}") from error
    try:
        _checked("setns", namespace, _CLONE_NEWNET)
    finally:
        os.close(namespace)


def _unshare() -> int:
    _checked("unshare", _CLONE_NEWNET)
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _checked(call: str, *arguments: int) -> None:
    if sys.platform != "linux":
        raise MachineError(f"network namespaces need Linux, this is {sys.platform}; run it --on processes")
    if getattr(ctypes.CDLL(None, use_errno=True), call)(*arguments) != 0:
        number = ctypes.get_errno()
        raise MachineError(f"a network namespace per node is not allowed here ({os.strerror(number)}); {_REMEDY}")
