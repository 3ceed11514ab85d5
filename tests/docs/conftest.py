"""Every documented command runs without what only `dev` and extras bring, as where a reader follows the README."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from plain_installation import plain_installation

ADDED = {
    "test_documented_commands.py": (),
    "test_lecture.py": (),
    "test_tuning_page.py": (),
    "test_your_network_page.py": (),
    "test_tutorial.py": ("pandas", "pytest"),
    "test_own_task_page.py": ("pandas",),
}
"""The tests that run a page's commands in this process, and the packages that the page says to add."""


@pytest.fixture(autouse=True)
def installed_by_the_readme(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide from netdfl what the README's set-up has not."""
    added = ADDED.get(request.node.path.name)
    if added is None:
        yield
        return
    with plain_installation(monkeypatch, added):
        yield
