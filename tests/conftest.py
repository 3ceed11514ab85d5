"""What all tests have in common: no property is judged by its time, and the heap of torch is looked through once.

A process computes by one thread, as a node does: there are as many processes as cores, and threads of torch that wait
for each other would take these from the tests beside.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from functools import cache
from unittest import mock

import pytest
import typer
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch, or NumPy, is first imported

from tests.warm import own_of_this_process, warm_fork_servers

EXAMPLES = "NETDFL_EXAMPLES"
"""Names the profile that says of how many examples a property is tried; `tests.soak.properties` sets it to many."""
settings.register_profile("sample", deadline=None, max_examples=25)
settings.register_profile("many", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get(EXAMPLES, "sample"))
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


@pytest.fixture(scope="session", autouse=True)
def _one_command_line() -> Iterator[None]:
    """Have Typer's runner make the command line once: that takes longer than most of what is typed."""
    with mock.patch("typer.testing._get_command", cache(typer.main.get_command)):
        yield
