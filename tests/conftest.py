"""What all tests have in common: no property is judged by its time, and the heap of torch is looked through once."""

from __future__ import annotations

import gc

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_unconfigure() -> None:
    """Let the interpreter take down all that it has loaded."""
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> None:
    """Leave what is there, modules and tests above all, out of every later collection, and of each simulated run's."""
    gc.collect()
    gc.freeze()
