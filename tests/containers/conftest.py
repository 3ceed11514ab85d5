"""These tests run containers, after others: the run of all tests prepares an engine of Docker meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docker_engine import missing

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _HERE in item.path.parents)
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(600, func_only=True))  # that Docker is not ready yet takes its own time


@pytest.fixture(scope="session", autouse=True)
def docker() -> None:
    if reason := missing():
        pytest.skip(reason)
