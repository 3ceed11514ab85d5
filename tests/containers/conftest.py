"""These tests run containers, after all others: by then the run of all tests has prepared an engine of Docker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docker_engine import missing

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _HERE in item.path.parents)


@pytest.fixture(scope="session", autouse=True)
def docker() -> None:
    if reason := missing():
        pytest.skip(reason)
