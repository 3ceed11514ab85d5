"""What ARCHITECTURE.md and CONTRIBUTING.md name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["ARCHITECTURE.md", "CONTRIBUTING.md"]
PACKAGES = {path.parent.name for path in (ROOT / "netdfl").glob("*/__init__.py")}


def named(page: str) -> set[str]:
    """Files and links that the page names, as paths from the root."""
    text = (ROOT / page).read_text(encoding="utf-8")
    links = {link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link}
    files = set(re.findall(r"`([\w.]+(?:/[\w.]+)+/?)`", text))
    return links | files


@pytest.mark.parametrize("page", PAGES)
def test_what_it_names_is_there(page: str) -> None:
    found = named(page)
    assert len(found) > 3
    missing = {name for name in found if not (ROOT / name).exists() and not (ROOT / "netdfl" / name).exists()}
    assert not missing


def test_the_map_has_every_package_and_no_other() -> None:
    table = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split("## The seam")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == PACKAGES


def test_modules_named_alone_are_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    alone = set(re.findall(r"`(\w+\.py)`", text))
    assert all(list((ROOT / "netdfl").rglob(name)) for name in alone)
