"""A browser, and pages in it that may neither ask elsewhere nor go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.chromium import find_chromium
from tests.web.fitting import WIDE

Open = Callable[[str], Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser for the tests of a module: while it is there no other event loop can begin in this thread."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = find_chromium()
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def width() -> int:
    """The width of the windows that `opened` opens, in pixels, unless a test names others."""
    return WIDE


@pytest.fixture
def opened(browser: Any, width: int) -> Iterator[Open]:
    """Opens pages; at the end none of them may have asked elsewhere, or gone wrong."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme="light")
    context.set_default_timeout(90_000)
    wrong: list[str] = []
    origins: set[str] = set()

    def asked(request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme != "data" and f"{parts.scheme}://{parts.netloc}" not in origins:
            wrong.append(f"it asked for {request.url}")

    def answered(dialog: Any) -> None:
        if not dialog.message.startswith(("End the run now?", "Throw ")):
            wrong.append(dialog.message)
        dialog.accept()

    def make(address: str) -> Any:
        parts = urlsplit(address)
        origins.add(f"{parts.scheme}://{parts.netloc}")
        page = context.new_page()
        page.on("request", asked)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", answered)
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.goto(address)
        return page

    yield make
    context.close()
    assert wrong == []
