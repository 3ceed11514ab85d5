"""Whether a page fits its window."""

from __future__ import annotations

from typing import Any


def check_fits(page: Any, width: int) -> None:
    """Nothing stands out to the right, once the page has been laid out anew for its window."""
    for _ in range(100):
        found = page.evaluate("document.documentElement.scrollWidth")
        if found <= width:
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"the page is {found} pixels wide, its window {width}")
