"""These tests make network namespaces; they are skipped where that is not allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.namespaces.udp_probe import missing

_MISSING = missing()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if _MISSING:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=_MISSING))
