"""What runs the cells of a sweep begins with torch imported."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest

from tests.warm import warm_python


@pytest.fixture(scope="module", autouse=True)
def _warm_cells() -> Iterator[None]:
    with mock.patch("netdfl.study.cells.sys.executable", warm_python()):
        yield
