"""What runs the cells of a sweep begins with torch imported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
from matplotlib.figure import Figure

from tests.warm import warm_python


@pytest.fixture(scope="module", autouse=True)
def _warm_cells() -> Iterator[None]:
    with mock.patch("netdfl.study.runners.local.sys.executable", warm_python()):
        yield


@pytest.fixture
def draw_nothing(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Leave out the figures of what is swept from now on."""

    def leave_out() -> None:
        for drawer in ("curves.draw_curves", "learning.draw_learning", "plots.draw"):
            monkeypatch.setattr(f"netdfl.study.{drawer}", lambda *drawn, **how: None)

    return leave_out


@pytest.fixture
def undrawn(draw_nothing: Callable[[], None]) -> None:
    """Leave out the figures of all that is swept: test_tables.py and test_curves.py look at them."""
    draw_nothing()


@pytest.fixture
def unsaved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all figures, and leave their files empty: most of what a figure takes is its picture."""

    def touched(figure: Figure, path: Path) -> None:
        path.touch()

    monkeypatch.setattr(Figure, "savefig", touched)


@pytest.fixture
def without_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out learning curves, which take seconds to draw."""
    monkeypatch.setattr("netdfl.study.learning.draw_learning", lambda *drawn, **how: None)
