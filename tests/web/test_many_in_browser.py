"""The list of many runs in a real browser, wide and on a phone: filters, groups, labels, comparisons, the way back."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from netdfl.collection.labels import read_labels
from netdfl.running.run import run
from netdfl.scenario.load import loads
from tests.agreeing import agreeing
from tests.web.conftest import Open
from tests.web.fitting import check_axe, check_fits, on_a_phone, on_a_phone_in_full
from tests.web.web_server import started

SMALL = agreeing("small", 4, 6, "seed: 3\nlinks: {default: {latency: 5ms}}", compute="10ms")
DELAY = "links.default.latency.delay"
FOUR = {
    "time: 10ms": "time: 20ms",
    "init: normal": "init: ones",
    "deadline: auto": "deadline: none",
    "stale: 0": "stale: 1",
}
"""Further values of every second run."""


def changed(text: str, lines: dict[str, str]) -> str:
    for old, new in lines.items():
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two real runs of each of two delays, and a hundred and twenty with a result alone."""
    root = tmp_path_factory.mktemp("many") / "runs"
    for i, (seed, delay) in enumerate([(1, "5ms"), (2, "5ms"), (1, "20ms"), (2, "20ms")]):
        sets = [f"seed={seed}", f"links.default.latency={delay}"]
        run(loads(SMALL, sets), out=root / f"20260201T00000{i}Z-{seed}", page=False)
    first = next(root.iterdir())
    result, text = json.loads((first / "result.json").read_text()), (first / "scenario.yaml").read_text()
    for i in range(120):
        path = root / f"20260101T{i // 60:02d}{i % 60:02d}00Z-{i}"
        path.mkdir()
        lines = {"dim: 2": f"dim: {3 + i % 4}", **(FOUR if i % 2 else {})}
        (path / "scenario.yaml").write_text(changed(text, lines))
        told = {"seed": i, "verdict": ["pass", "fail"][i % 2], "error": i / 100, "reasons": [f"stall {i}"] * (i % 2)}
        told |= {"stalls": [{}] * (i == 7), "deadlocks": [{}] * (i == 7)}
        (path / "result.json").write_text(json.dumps(result | told))
    return root


@pytest.fixture(scope="module")
def address(many: Path) -> Iterator[str]:
    with started("serve", many, "--no-browser", "--write") as (found, _):
        yield found


@on_a_phone_in_full
def test_the_list_is_found_filtered_grouped_and_kept_in_the_address(opened: Open, address: str) -> None:
    page = opened(address)
    rows = page.locator("#list tbody tr")
    page.get_by_text("124 of 124 runs").wait_for()
    assert rows.count() == 50
    assert page.locator("tr").count() < 100
    assert page.locator(".mark.done").count() == 4
    dates = page.locator("#list td[data-label^=date]").all_inner_texts()
    assert dates == sorted(dates, reverse=True)
    check_fits(page)
    page.get_by_role("button", name="the next 50").click()
    page.get_by_text("51 to 100 of 124").wait_for()
    page.locator("#filter").fill("dim > 4 seed < 10 fail")
    page.get_by_text("2 of 124 runs").wait_for()
    assert page.locator("#list td[data-label=seed]").all_inner_texts() == ["7", "3"]
    assert page.get_by_title("stall 7").inner_text() == "fail"
    assert page.locator("#list td[data-label=stalls]").all_inner_texts() == ["◆ 2", "0"]
    page.locator("#filter").fill("stalls > 0")
    page.get_by_text("1 of 124 runs").wait_for()
    page.locator("#filter").fill("dim >")
    page.locator("#said.wrong", has_text="can't be read from").wait_for()
    page.locator("#filter").fill("seed < 10")
    page.get_by_text("14 of 124 runs").wait_for()
    page.get_by_role("combobox", name="group by", exact=True).select_option("task.dim")
    page.get_by_text("5 groups").wait_for()
    assert page.locator("#list tbody tr").first.inner_text().split()[-2:] == ["compare", "them"]
    check_fits(page)
    page.reload()
    page.get_by_text("5 groups").wait_for()
    assert page.get_by_role("combobox", name="group by", exact=True).input_value() == "task.dim"
    page.locator("#list tbody button", has_text="3").first.click()
    page.get_by_text("3 of 124 runs").wait_for()
    assert page.locator("#filter").input_value() == "seed < 10 task.dim = 3"
    page.locator("summary", has_text="columns").click()
    page.get_by_label("nodes", exact=True).check()
    page.locator("#list td[data-label=nodes]").first.wait_for()
    assert "columns=" in page.evaluate("location.hash")


@pytest.mark.soak
@on_a_phone_in_full
def test_four_keys_are_columns_and_the_others_are_named_and_can_be_chosen(opened: Open, address: str) -> None:
    page = opened(address)
    page.get_by_text("124 of 124 runs").wait_for()
    head, more = page.locator("#list thead th"), page.locator("#more-keys")
    assert head.all_inner_texts()[-4:] == ["task.dim", "world.compute.time", "task.init", "wait.deadline"]
    assert (more.inner_text(), more.get_attribute("title")) == ("columns: +2 more keys differ", f"wait.stale, {DELAY}")
    more.click()
    page.get_by_label("wait.stale", exact=True).check()
    page.locator("#list td[data-label='wait.stale']").first.wait_for()
    page.reload()
    page.locator("#list td[data-label='wait.stale']").first.wait_for()
    assert head.all_inner_texts()[-5:] == ["task.dim", "world.compute.time", "task.init", "wait.deadline", "wait.stale"]
    assert more.inner_text() == "columns"
    more.click()
    page.locator("#another-key").fill("algorithm.lr")
    page.keyboard.press("Enter")
    assert page.locator("#list td[data-label='algorithm.lr']").first.inner_text() == "0.1"


def check_pinned(box: Any) -> None:
    """The table in this box scrolls both ways, and its head and first column stay."""
    found = box.evaluate(
        """(box) => {
          Object.assign(box.style, { maxHeight: '80px', maxWidth: '300px' });
          box.scrollTo(1000, 1000);
          const own = box.getBoundingClientRect(), of = (what) => box.querySelector(what).getBoundingClientRect();
          const at = (what) => [of(what).x - own.x, of(what).y - own.y];
          const corner = at('th'), last = at('th:last-child'), row = at('tr:last-child td');
          return { far: [box.scrollLeft, box.scrollTop], corner, last, row, wide: of('th').width };
        }"""
    )
    assert min(found["far"]) > 5
    assert found["wide"] < 200
    assert found["corner"] == pytest.approx([0, 0], abs=1.5)
    assert found["last"][1] == pytest.approx(0, abs=1.5)
    assert found["row"][0] == pytest.approx(0, abs=1.5)


@pytest.mark.soak
@on_a_phone_in_full
def test_runs_are_compared_by_bytes_smoothed_and_taken_home(opened: Open, address: str) -> None:
    page = opened(f"{address}#filter=done")
    page.get_by_text("4 of 124 runs").wait_for()
    page.get_by_role("button", name="compare all that fit").click()
    page.get_by_text("4 runs beside each other").wait_for()
    assert page.locator("#scatter circle").count() == 4
    legend = page.locator("#beside .u-legend")
    assert legend.get_by_text("mean of 2").count() == 2
    page.get_by_role("combobox", name="by", exact=True).select_option("nbytes")
    assert "bytes sent" in legend.inner_text()
    page.get_by_role("combobox", name="smoothing", exact=True).select_option("3")
    page.get_by_role("combobox", name="figure", exact=True).select_option("consensus_distance")
    page.get_by_role("combobox", name="against", exact=True).select_option("nbytes")
    saved = {}
    for place, form in ((page.locator("#beside .tools").first, "CSV"), (page.locator("#beside section .tools"), "SVG")):
        with page.expect_download() as download:
            place.get_by_role("button", name=f"save as {form}").click()
        saved[form] = Path(download.value.path()).read_text()
    head, *lines = saved["CSV"].splitlines()
    assert head == "curve,bytes sent,error,lowest,highest"
    assert len(lines) == 2 * 6
    assert saved["SVG"].count("<circle") == 4
    assert ">consensus distance against bytes sent</text>" in saved["SVG"]
    check_pinned(page.get_by_role("region", name="In what they differ"))
    with page.expect_download() as download:
        page.locator("#beside .tools").first.get_by_role("button", name="save as PNG").click()
    assert Path(download.value.path()).read_bytes()[:4] == b"\x89PNG"
    check_fits(page)
    page.reload()
    page.get_by_text("4 runs beside each other").wait_for()
    assert page.get_by_role("combobox", name="smoothing", exact=True).input_value() == "3"
    page.locator("#reset").click()
    assert page.get_by_role("combobox", name="smoothing", exact=True).input_value() == "1"
    dot = page.locator("#scatter circle").last  # no other one lies over it
    place = dot.locator("title").text_content().split(":")[0]
    path = page.locator("#list").get_by_role("link", name=place, exact=True).get_attribute("href")
    dot.click()
    page.locator("#handle").wait_for()
    assert urlsplit(page.url).path == path
    page.get_by_role("link", name="all runs").click()
    page.get_by_text("4 runs beside each other").wait_for()
    assert page.locator("#filter").input_value() == "done"


@on_a_phone_in_full
def test_ticked_runs_are_labeled_archived_and_thrown_away(opened: Open, address: str, many: Path) -> None:
    thrown, trash = many / "20260101T000000Z-0", many / ".trash/20260101T000000Z-0"
    page = opened(f"{address}#filter=seed%20%3D%200")
    page.get_by_text("1 of 124 runs").wait_for()
    head = page.locator("#list thead th")
    assert not {"tags", "note"} & set(head.all_inner_texts())
    page.locator("#list input[type=checkbox]").check()
    page.locator("#tag").fill("slow uplinks")
    page.get_by_role("button", name="add it").click()
    page.locator("#list td[data-label=tags]", has_text="slow uplinks").wait_for()
    page.locator("#done", has_text="20260101T000000Z-0: tagged “slow uplinks”.").wait_for()
    page.locator("#note").fill("<b>why</b>")
    page.get_by_role("button", name="keep it").click()
    page.locator("#list td[data-label=note]", has_text="<b>why</b>").wait_for()
    page.locator("#done", has_text="noted").wait_for()
    assert (page.locator("#tag").input_value(), page.locator("#note").input_value()) == ("", "")
    assert read_labels(thrown).note == "<b>why</b>"
    page.get_by_role("button", name="archive", exact=True).click()
    page.get_by_text("0 of 124 runs, 1 archived").wait_for()
    page.locator("#orders").wait_for(state="hidden")  # what vanished from the list is ticked no more
    page.locator("#archived").click()
    page.locator("#list input[type=checkbox]").check()
    page.get_by_role("button", name="out of the archive").click()
    page.locator("#done", has_text="out of the archive").wait_for()
    page.locator("#archived").click()
    page.locator("#archived").wait_for(state="detached")
    page.get_by_text("1 of 124 runs").wait_for()
    assert head.all_inner_texts()[-2:] == ["tags", "note"], "behind the keys, or they push these out of the window"
    check_fits(page)
    page.get_by_role("button", name="throw away").click()
    page.get_by_text("0 of 123 runs").wait_for()
    (trash / "labels.json").unlink()
    shutil.move(trash, thrown)


@on_a_phone_in_full
def test_ticked_runs_that_the_filter_hides_are_named_before_they_are_thrown_away(
    opened: Open, address: str, many: Path
) -> None:
    names = [f"20260101T000{i}00Z-{i}" for i in range(3)]
    page, asked = opened(f"{address}#filter=20260101%20seed%20%3C%203"), []
    page.get_by_text("3 of 124 runs").wait_for()
    for name in names:
        page.get_by_label(f"compare {name}").check()
    page.locator("#filter").fill("20260101 seed = 0")
    page.locator("#orders span", has_text="3 ticked, 2 of them not shown:").wait_for()
    check_fits(page)
    page.on("dialog", lambda dialog: asked.append(dialog.message))
    page.get_by_role("button", name="throw away").click()
    page.locator("#done", has_text="moved to the folder .trash").wait_for()
    for name in names:
        shutil.move(many / ".trash" / name, many / name)
    head, _, *named = asked[0].splitlines()
    assert head.startswith("Throw 3 runs away? 2 of them are not shown.")
    assert sorted(named) == [names[0], f"{names[1]} (not shown)", f"{names[2]} (not shown)"]
    page.goto(f"{address}#filter=20260101%20seed%20%3C%202")
    page.get_by_text("2 of 124 runs").wait_for()
    for name in names[:2]:
        page.get_by_label(f"compare {name}").check()
    page.locator("#filter").fill("20260101 seed = 0")
    page.get_by_role("button", name="untick those not shown").click()
    page.locator("#orders span", has_text="1 ticked:").wait_for()


@pytest.mark.soak
@on_a_phone_in_full
def test_runs_that_differ_in_the_seed_alone_are_drawn_against_it(opened: Open, address: str) -> None:
    page = opened(f"{address}#filter=done%20delay%20%3D%205ms")
    page.get_by_text("2 of 124 runs").wait_for()
    page.get_by_role("button", name="compare all that fit").click()
    page.locator("#scatter circle").first.wait_for()
    assert page.get_by_role("combobox", name="against", exact=True).input_value() == "seed"


@pytest.mark.soak
@on_a_phone_in_full
def test_a_filter_that_finds_nothing_says_which_key_may_be_meant(opened: Open, address: str) -> None:
    page = opened(f"{address}#filter=name%20%3D%20dpsgd")
    page.locator("#said", has_text="0 of 124 runs. name is the column name; did you mean algorithm.name?").wait_for()


@pytest.mark.soak
@on_a_phone_in_full
def test_axe_finds_no_serious_fault_in_the_list(opened: Open, address: str) -> None:
    page = opened(f"{address}#filter=done")
    page.get_by_text("4 of 12").wait_for()
    page.get_by_role("button", name="compare all that fit").click()
    page.locator("#scatter circle").first.wait_for()
    page.locator("summary", has_text="columns").click()
    check_fits(page)
    check_axe(page)
    page.emulate_media(color_scheme="dark")
    with on_a_phone(page):
        check_axe(page)


@pytest.fixture(scope="module")
def few(many: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder with the real runs alone, in which more are made, and the address of its list."""
    root = tmp_path_factory.mktemp("few") / "runs"
    for path in many.glob("20260201*"):
        shutil.copytree(path, root / path.name)
    with started("serve", root, "--no-browser", "--write") as (found, _):
        yield root, found


def open_form(page: Any) -> Any:
    """Ask to repeat a run with other values; the field of its rounds."""
    page.locator("#filter").fill("20260201 seed = 1 done")
    page.get_by_text(re.compile("^2 of [45] runs")).wait_for()  # or the first row is another one a moment later
    page.locator("#list input[type=checkbox]").first.check()
    page.get_by_role("button", name="repeat with other values").click()
    page.locator("#find-key").fill("rounds")
    return page.locator("#key-rounds")


@pytest.mark.soak
@on_a_phone_in_full
def test_the_form_of_a_repeat_fits_and_says_what_is_wrong(opened: Open, few: tuple[Path, str]) -> None:
    page = opened(few[1])
    rounds = open_form(page)
    rounds.fill("0")
    assert page.locator(".field:visible").count() < 10
    page.get_by_role("button", name="check the values").click()
    page.locator(".field .wrong", has_text="rounds is 0, expected at least 1").wait_for()
    assert rounds.get_attribute("aria-invalid") == "true"
    check_fits(page)
    check_axe(page, "#repeat")


def test_a_run_is_repeated_with_other_values(opened: Open, few: tuple[Path, str]) -> None:
    root, address = few
    page = opened(address)
    rounds = open_form(page)
    again = opened(page.url)
    again.locator("#find-key").wait_for()
    again.get_by_role("button", name="leave it").click()
    assert "repeat=" not in again.url
    before = {*root.glob("small/*")}
    rounds.fill("2")
    page.get_by_role("button", name="begin the run").click()
    page.get_by_text("Begun:").wait_for()
    (made,) = {*root.glob("small/*")} - before
    page.locator("#said a", has_text=made.name).wait_for()
