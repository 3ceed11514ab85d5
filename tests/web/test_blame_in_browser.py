"""The blame of a run on its page: the table, ordered by its headings, and both runs from where they part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netdfl.blame.keeping import keep_blame
from netdfl.report.html import write_report
from tests.blame.fleets import RING, listed
from tests.blame.fleets import opened as blame_of
from tests.blame.test_closed_forms import SLOW
from tests.web.conftest import Open
from tests.web.fitting import check_axe, check_fits
from tests.web.web_server import first_data, started

TWO = RING | SLOW | {"links": RING["links"] | {"0->1": listed(4), "2->1": listed(4)}}
SLOWEST, LOST = "the slowness of node 2", "the losses on 0->1"
COLORS = """(place) => {
  const lanes = document.querySelectorAll('#parted canvas')[place], from = 70 * devicePixelRatio, colors = new Set();
  const all = lanes.getContext('2d').getImageData(from, 0, lanes.width - from, lanes.height - 30).data;
  for (let i = 0; i < all.length; i += 4) colors.add(all[i] << 16 | all[i + 1] << 8 | all[i + 2]);
  const style = getComputedStyle(document.documentElement);
  const number = (name) => parseInt(style.getPropertyValue('--' + name).trim().slice(1), 16);
  return ['c0', 'c1', 'line'].filter((name) => colors.has(number(name)));
}"""
"""Which of the colors of training, waiting and nothing the lanes of a run show."""


@pytest.fixture(scope="module")
def blamed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a slow node and two losses, its blame, and its report."""
    folder = tmp_path_factory.mktemp("blamed")
    asked = blame_of(TWO, folder)
    asked.play()
    keep_blame(asked)
    write_report(folder / "run")
    return folder / "run"


def rows(page: Any) -> list[str]:
    return [text.split("\t")[0].strip() for text in page.locator("#blame tbody tr").all_inner_texts()]


@pytest.mark.parametrize(("width", "scheme"), [pytest.param(1280, "light", marks=pytest.mark.soak), (400, "dark")])
def test_a_row_shows_both_runs_from_where_they_part(scheme: str, blamed: Path, opened: Open) -> None:
    page = opened((blamed / "report.html").as_uri())
    page.emulate_media(color_scheme=scheme)
    page.locator("#blame li", has_text="Effects don't add up").wait_for()
    assert rows(page) == [SLOWEST, "the losses on 2->1", LOST], "as the command prints them"
    assert page.locator("#blame tbody td").all_inner_texts()[1:3] == ["170ms", "105ms less, 38.2 %"]
    page.locator("#blame button", has_text=LOST).click()
    said = page.locator("#parted .sentence")
    assert said.inner_text().startswith(
        "They part at 0.15 s. The run: data 0->1, round 4, step 0: sent at 0.15 s, dropped:loss"
    )
    assert f"Without {LOST}: data 0->1, round 4, step 0" in said.inner_text()
    page.locator("#blame button", has_text=SLOWEST).focus()
    page.keyboard.press("Enter")
    page.locator("#parted figcaption", has_text=f"Without {SLOWEST}: 170ms").wait_for()
    assert page.locator("#blame [aria-pressed=true]").all_inner_texts() == [SLOWEST]
    for place in (0, 1):
        page.wait_for_function(f"({COLORS})({place}).length === 3")
    page.locator("#parted button", has_text="closer").click()
    check_fits(page)
    check_axe(page, "#blame")


@pytest.mark.soak
def test_headings_order_the_table_and_a_reload_keeps_the_row(blamed: Path, opened: Open) -> None:
    page = opened((blamed / "report.html").as_uri())
    name, gain = (page.locator(f"#blame [data-sort='{column}']") for column in (0, 2))
    name.click()
    page.locator("#blame th[aria-sort=ascending]", has_text="without").wait_for()
    assert rows(page) == [LOST, "the losses on 2->1", SLOWEST]
    gain.click()
    page.locator("#blame th[aria-sort=descending]", has_text="gain").wait_for()
    assert rows(page)[0] == SLOWEST
    gain.click()
    page.locator("#blame th[aria-sort=ascending]", has_text="gain").wait_for()
    assert rows(page)[2] == SLOWEST
    page.locator("#blame button", has_text=LOST).click()
    page.locator("#parted h3", has_text=LOST).wait_for()
    page.reload()
    page.locator("#parted h3", has_text=LOST).wait_for()


def test_a_page_that_was_served_before_the_blame_has_it_once_it_is_opened_again(tmp_path: Path, opened: Open) -> None:
    asked = blame_of(RING | SLOW, tmp_path)
    with started("serve", tmp_path / "run") as (address, _):
        page = opened(address)
        page.locator("#lanes canvas").wait_for()
        assert page.locator("#blame").is_hidden()
        address = page.url
        asked.play()
        keep_blame(asked)
        page.reload()
        page.locator("#blame button", has_text=SLOWEST).click()
        page.locator("#parted .sentence", has_text="They part at").wait_for()
        assert first_data(address)["data"]["blame"]["took"] == "205ms"  # type: ignore[index]
