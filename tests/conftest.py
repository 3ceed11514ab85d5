"""What all tests have in common: no property is judged by its time, and the heap of torch is looked through once."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.warm import own_of_this_process, warm_fork_servers

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background has it so, and all that tests start would
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    """Let the interpreter take down all that it has loaded."""
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> None:
    """Leave what is there, modules and tests above all, out of every later collection, and of each simulated run's."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _warm() -> Iterator[None]:
    """Start real fleets from what has imported torch, but for those of a command of their own."""
    with warm_fork_servers(own_of_this_process()):
        yield
