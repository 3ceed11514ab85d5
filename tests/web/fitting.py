"""The widths of windows in which pages are tried, whether a page fits its window, and whether anybody can use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

WIDE, PHONE = 1280, 400
at_both_widths = pytest.mark.parametrize("width", [WIDE, PHONE])
"""Has the fixture `opened` open pages in a wide window, and on a phone."""
on_a_phone_in_full = pytest.mark.parametrize("width", [WIDE, pytest.param(PHONE, marks=pytest.mark.soak)])
"""The same for what a page does at any width; CI opens it in a wide window alone, where it looks for both."""


@contextmanager
def on_a_phone(page: Any) -> Iterator[None]:
    """The page in a window of a phone's width; afterwards in the one that it was in."""
    before = page.viewport_size
    page.set_viewport_size({**before, "width": PHONE})
    yield
    page.set_viewport_size(before)


def check_fits(page: Any) -> None:
    """Nothing stands out to the right, in the page's own window and on a phone."""
    _check_fits_now(page)
    with on_a_phone(page):
        _check_fits_now(page)


def _check_fits_now(page: Any) -> None:
    """In its window, once the page has been laid out anew for it."""
    width = page.viewport_size["width"]
    for _ in range(100):
        found = page.evaluate("document.documentElement.scrollWidth")
        if found <= width:
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"the page is {found} pixels wide, its window {width}")


def check_axe(page: Any, within: str = "") -> None:
    """Axe finds no serious fault on the page, or within the element with the selector `within`."""
    axe = Path(pytest.importorskip("axe_playwright_python").__file__).with_name("axe.min.js")
    page.evaluate(axe.read_text(encoding="utf-8"))
    assert grave(page.evaluate(f"axe.run('{within}')" if within else "axe.run()")) == []


def grave(found: Any) -> list[tuple[str, list[str]]]:
    """The faults that keep somebody out, with the elements that have them."""
    faults = [each for each in found["violations"] if each["impact"] in ("serious", "critical")]
    return [(each["id"], [node["html"][:120] for node in each["nodes"][:3]]) for each in faults]
