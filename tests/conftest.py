"""What all tests have in common: no property is judged by its time, and the heap of torch is looked through once."""

from __future__ import annotations

import gc

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# A simulated run looks through the heap, freezes it and thaws it at its end. In a process that has loaded torch and
# thousands of tests that takes longer than the run: here the heap is frozen after each module, and thawed at the end.
_freeze, _thaw = gc.freeze, gc.unfreeze
gc.freeze = gc.unfreeze = lambda: None


def pytest_unconfigure() -> None:
    """Let the interpreter take down all that it has loaded."""
    _thaw()


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> None:
    """Leave what is there, modules and tests above all, out of every later collection."""
    gc.collect()
    _freeze()
