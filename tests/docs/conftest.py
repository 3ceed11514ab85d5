"""Every documented command runs without what only `dev` and extras bring, as where a reader follows the README."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from plain_installation import ADDED, plain_installation


@pytest.fixture(autouse=True)
def installed_by_the_readme(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide from netdfl what the README's set-up has not."""
    added = ADDED.get(request.node.path.name)
    if added is None:
        yield
        return
    with plain_installation(monkeypatch, added):
        yield
