"""Forked processes inherit their work, and say so when one of them dies."""

from __future__ import annotations

import os

import pytest

from netdfl.core.errors import RunError
from netdfl.core.forks import do_work, forked


def test_the_work_is_inherited_and_need_not_be_pickled() -> None:
    with forked(lambda one, other: one * other, 2, "one died") as pool:
        assert list(pool.map(do_work, range(3), range(3))) == [0, 1, 4]


def test_the_death_of_a_process_is_an_error_of_the_run() -> None:
    with pytest.raises(RunError, match="one died"), forked(os._exit, 2, "one died") as pool:
        pool.submit(do_work, 1).result()
