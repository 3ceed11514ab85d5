"""The page in a real browser: followed, asked, moved in time, by pointer and keyboard, and with hostile words."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from netdfl.record.run import Run, open_run
from netdfl.report.html import write_report
from netdfl.running.run import run
from netdfl.scenario.load import load, loads
from tests.agreeing import agreeing
from tests.report.conftest import fabricate_run
from tests.web.conftest import Open
from tests.web.fitting import PHONE, WIDE, check_axe, check_fits, on_a_phone, on_a_phone_in_full
from tests.web.web_server import ask, started

LOSSY = """
seed: 5
wait: {deadline: 60ms}
delivery: plain
links: {default: {latency: 5ms, loss: 15%}, "0->1": {loss: 50%}}
events: [{at: 100ms, for: 100ms, partition: [[0..2], [3..5]]}]
expect: {deadlock: none}
"""
EVIL = "<img src=x onerror=window.hacked=1></script><script>window.hacked=2</script>"
BUSY = """(() => {
  const lanes = document.querySelector('#lanes canvas'), from = 70 * devicePixelRatio, colors = new Set();
  const all = lanes.getContext('2d').getImageData(from, 0, lanes.width - from, lanes.height - 30).data;
  for (let i = 0; i < all.length; i += 4) colors.add(all[i] << 16 | all[i + 1] << 8 | all[i + 2]);
  const style = getComputedStyle(document.documentElement);
  const busy = ['c0', 'c1', 'c2'].map((name) => parseInt(style.getPropertyValue('--' + name).trim().slice(1), 16));
  return busy.filter((each) => colors.has(each)).length;
})()"""
"""How many of the three colors of busy nodes the lanes show."""
ANGLES = """(id) => [...document.querySelectorAll('#stall .graph, #fleet .graph')].map((each) => {
  const at = each.graph.getElementById(id).position();
  return Math.atan2(at.y, at.x);
})"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs: one under loss, one that stalled, one whose every word is markup."""
    root = tmp_path_factory.mktemp("seen")
    run(loads(agreeing("lossy", 6, 12, LOSSY, compute="10ms")), out=root / "lossy")
    run(load("scenarios/faults/lost_message.yaml", on="simulated"), out=root / "stalled")
    run(load("scenarios/studies/shared_core.yaml", ["rounds=8"]), out=root / "core")
    evil = root / "evil"
    shutil.copytree(root / "stalled", evil)
    (evil / "logs").mkdir()
    (evil / "logs/003.log").write_text(EVIL)
    for name in ("result.json", "stalls/000.json", "fleet.json"):
        text = (evil / name).read_text()
        text = re.sub(
            r'("(?:text|what|scenario|algorithm|world)": )"[^"]*"', lambda match: match[1] + json.dumps(EVIL), text
        )
        (evil / name).write_text(text)
    (evil / "scenario.yaml").write_text(f"name: '{EVIL}'\n")
    with (evil / "store/events-evil.jsonl").open("w") as file:
        row = {"at_s": 0.1, "node": 3, "round": 1, "kind": "refused", "details": {"reason": EVIL}}
        file.write(json.dumps(row) + "\n" + json.dumps(row | {"kind": EVIL}) + "\n")
    write_report(evil)
    return root


def file_of(folder: Path, name: str) -> str:
    return (folder / name / "report.html").as_uri()


def counts(found: Run, at_s: float) -> dict[str, int]:
    """Messages that were sent and what became of them, up to a moment, as the store has it."""
    rows = found.rows(
        "SELECT CASE split_part(fate, ':', 1) WHEN 'dropped' THEN 'lost' WHEN 'failed' THEN 'undeliverable' "
        "ELSE split_part(fate, ':', 1) END AS class, count(*) FILTER (coalesce(arrived_s, sent_s) <= $at) "
        "FROM messages WHERE fate <> 'in_flight' GROUP BY 1",
        {"at": at_s},
    )
    ((sent,),) = found.rows("SELECT count(*) FROM messages WHERE sent_s <= $at", {"at": at_s})
    return {"sent": sent} | {name: number for name, number in rows if number}


def told(text: str) -> dict[str, int]:
    """What the page says was sent, and became of it."""
    return {
        name.removeprefix("messages "): int(number.replace(",", ""))
        for number, name in re.findall(
            r"([\d,]+) (messages sent|delivered|lost|undeliverable|late|duplicate|refused)", text
        )
    }


def test_the_handle_sets_the_moment_and_the_counts_are_those_of_the_store(folder: Path, opened: Open) -> None:
    page, found = opened(file_of(folder, "lossy")), open_run(folder / "lossy")
    moments = page.evaluate("JSON.parse(document.getElementById('data').textContent).frame.moments")
    for place in (0, 40, 155, 300):
        page.locator("#handle").fill(str(place))
        assert told(page.inner_text("#counts")) == counts(found, moments[place])
    assert counts(found, moments[155])["lost"] > 0
    assert page.locator("#underlay").is_hidden(), "the run has none"


@on_a_phone_in_full
def test_the_underlay_says_of_a_core_link_who_shares_it_how_full_and_whether_cut(folder: Path, opened: Open) -> None:
    page, found = opened(file_of(folder, "core")), open_run(folder / "core").result["time"]["bottleneck"]
    said = page.locator("#core-link")
    shared = f"shared by {found['links']} links of nodes"
    assert f"{found['link']}: the bottleneck of the run; 100 Mbit/s, 3 ms;" in said.inner_text()
    assert shared in said.inner_text()
    last = page.evaluate("JSON.parse(document.getElementById('data').textContent).frame.moments.at(-1)")
    for at_s, words in ((2.2, "cut at this moment"), (0.15, "of its rate in use at ")):
        page.locator("#handle").fill(str(round(at_s / last * 300)))
        said.filter(has_text=words).wait_for(timeout=20_000)
    assert float(re.findall(r"([\d.]+)% of its rate", said.inner_text())[0]) > 95
    page.locator("#underlay select").select_option(label="berlin->paris")
    assert said.inner_text().startswith("berlin->paris: 200 Mbit/s, 6 ms;")
    assert "core=berlin-%3Eparis" in page.url
    assert page.locator("#underlay circle").count() == 5
    check_fits(page)


@pytest.mark.soak
def test_a_link_that_is_clicked_says_what_it_lost(folder: Path, opened: Open) -> None:
    page, found = opened(file_of(folder, "lossy")), open_run(folder / "lossy")
    page.locator(".graph canvas").first.wait_for()
    at = page.evaluate(
        "(() => { const cy = document.querySelector('.graph').graph, box = cy.container().getBoundingClientRect();"
        "const at = cy.getElementById('e0-1').renderedMidpoint(); return [box.x + at.x, box.y + at.y]; })()"
    )
    page.mouse.click(*at)
    rows = found.rows("SELECT count(*), count(*) FILTER (fate LIKE 'dropped%') FROM messages WHERE src = 0 AND dst = 1")
    ((sent, lost),) = rows
    panel = page.inner_text("#panel")
    assert "Link 0 → 1" in panel
    assert f"{sent} messages" in panel
    assert f"{lost} lost" in panel
    assert re.search(rf"loss\s+50\.0%\s+{100 * lost / sent:.1f}%", panel)


def test_a_link_says_that_events_ask_for_loss_too(folder: Path, opened: Open) -> None:
    page = opened(file_of(folder, "stalled"))
    page.locator("#find-link").fill("2-3")
    page.keyboard.press("Enter")
    assert re.search(r"loss\s+none, and by events\s+\d", page.inner_text("#panel"))
    assert "0 ms: queues, size, spread" in page.inner_text("#panel")


@on_a_phone_in_full
def test_the_wait_for_graph_of_a_stall_is_opened_and_boxes_that_scroll_have_a_shadow_where_there_is_more(
    folder: Path, opened: Open
) -> None:
    page = opened(file_of(folder, "stalled"))
    page.locator("[data-stall='0']").click()
    assert "node 3 waits in round 5 for node 2, whose message was lost on 2->3" in page.inner_text("#stall .sentence")
    assert "wait.deadline: auto" in page.locator("#stall .sentence code").all_inner_texts()
    assert "`" not in page.inner_text("#stall .sentence")
    rows = page.locator("#stall tbody tr").all_inner_texts()
    assert any(row.split()[:2] == ["3", "2"] and "root" in row for row in rows)
    assert page.locator("#stall canvas").count() > 0
    assert "85 ms" in page.inner_text("#moment")
    found_s = json.loads((folder / "stalled/stalls/000.json").read_text())["finding"]["found_s"]
    found = f"{found_s:g} s" if found_s >= 1 else f"{1000 * found_s:g} ms"
    assert f"began, at 85 ms; the graph is of {found}, when it was found." in page.inner_text("#stall")
    for box in ("#stall .scroll", ".lanebox", "#panel", "#sections .scroll"):
        shadow = page.locator(box).first.evaluate("(box) => getComputedStyle(box).backgroundAttachment")
        assert shadow.split(", ")[:8] == ["local"] * 4 + ["scroll"] * 4


def test_names_and_reasons_that_are_markup_do_nothing(folder: Path, opened: Open) -> None:
    with started("serve", folder, "--no-browser") as (address, _):
        _, text = ask(address, f"{urlsplit(address).path}runs")
        ids = {row["place"]: row["id"] for row in json.loads(text)["runs"]}
        for place in (file_of(folder, "evil"), f"{address}run/{ids['evil']}/", address):
            page = opened(place)
            page.get_by_text("onerror=window.hacked").first.wait_for()
            if page.locator("#find-node").count():
                page.locator("#find-node").fill("3")
                page.keyboard.press("Enter")
                page.locator("#panel h3", has_text="Node 3").wait_for()
                page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
                if page.get_by_role("button", name="show its log").count():
                    page.get_by_role("button", name="show its log").click()
                    page.locator("#panel pre", has_text="hacked").wait_for()
                page.locator("[data-stall='0']").click()
            if place == address:
                page.get_by_role("button", name="compare all that fit").click()
                page.get_by_text("In what they differ").wait_for()
            assert page.evaluate("[window.hacked, document.images.length, document.scripts.length]") == [None, 0, 2]
            page.close()


def test_the_keyboard_alone_reaches_everything(folder: Path, opened: Open) -> None:
    page = opened(file_of(folder, "stalled"))
    wanted = page.evaluate(
        "[...document.querySelectorAll('button, select, input, summary, a[href]')].filter((each) => each.offsetParent)"
        ".map((each, i) => { each.dataset.seen = i; return String(i); })"
    )
    page.evaluate(
        "window.seen = []; addEventListener('focusin', (event) => seen.push(event.target.dataset.seen ?? ''))"
    )
    for _ in range(len(wanted) + 60):
        page.keyboard.press("Tab")
    assert set(wanted) <= set(page.evaluate("seen"))
    page.locator("#handle").focus()
    before = page.inner_text("#moment")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("PageDown")
    assert page.inner_text("#moment") != before
    page.locator("#find-link").focus()
    page.keyboard.type("2-3")
    page.keyboard.press("Enter")
    assert "Link 2 → 3" in page.inner_text("#panel")
    page.locator("[data-stall='0']").focus()
    page.keyboard.press("Enter")
    assert "node 3 waits in round 5" in page.inner_text("#stall")


@on_a_phone_in_full
def test_axe_finds_no_serious_fault(folder: Path, opened: Open) -> None:
    page = opened(file_of(folder, "stalled"))
    page.locator("[data-stall='0']").click()
    page.locator("#find-node").fill("3")
    page.keyboard.press("Enter")
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    check_axe(page)
    check_fits(page)
    page.emulate_media(color_scheme="dark")
    with on_a_phone(page):
        check_axe(page)


def test_the_essentials_need_no_script(folder: Path, browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file_of(folder, "stalled"))
    text = page.inner_text("body")
    for words in ("node 3 waits in round 5 for node 2", "What became of the messages", "pass", "The scenario"):
        assert words.lower() in text.lower()
    context.close()
    assert os.path.getsize(folder / "stalled/report.html") < 1_000_000


@on_a_phone_in_full
def test_a_link_opens_a_stall_at_its_beginning_where_its_nodes_stand(folder: Path, opened: Open) -> None:
    page = opened(f"{file_of(folder, 'stalled')}#stall=0&node=3")
    assert "node 3 waits in round 5 for node 2" in page.inner_text("#stall .sentence")
    assert "85 ms" in page.inner_text("#moment")
    assert "Node 3" in page.inner_text("#panel")
    assert "stalled: waits for 2 since 85 ms" in page.inner_text("#panel")
    at, last = page.evaluate("[Number(handle.value), Number(handle.max)]")
    assert at < last
    for node in range(8):
        stands = page.evaluate(ANGLES, f"n{node}")
        assert stands[0] == pytest.approx(stands[1], abs=1e-6)
    check_fits(page)


@pytest.mark.soak
@on_a_phone_in_full
def test_closer_goes_where_something_is_drawn_though_the_handle_is_at_the_end(folder: Path, opened: Open) -> None:
    page = opened(file_of(folder, "lossy"))
    for _ in range(3):
        page.get_by_role("button", name="closer").click()
        page.wait_for_timeout(100)
        assert page.evaluate(BUSY) > 0


@pytest.mark.soak
@on_a_phone_in_full
def test_a_chart_is_taken_home(folder: Path, opened: Open) -> None:
    page = opened(file_of(folder, "lossy"))
    for form, begin in (("SVG", b"<svg"), ("PNG", b"\x89PNG"), ("CSV", b"curve,round,Error")):
        with page.expect_download() as download:
            page.locator(".chart", has_text="Error").get_by_role("button", name=f"save as {form}").click()
        found = Path(download.value.path()).read_bytes()
        assert found.startswith(begin)
        assert download.value.suggested_filename == f"error-by-round.{form.lower()}"
    assert len(found.splitlines()) == 1 + 12


@pytest.fixture(scope="module")
def sampled(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run with CPU time and memory of its processes."""
    path = tmp_path_factory.mktemp("sampled") / "run"
    shutil.copytree(folder / "stalled", path)
    with (path / "store/resources-x.jsonl").open("w") as file:
        for node in range(8):
            for at_s in (0, 2, 4):
                row = {
                    "at_s": at_s,
                    "process": f"node {node}",
                    "node": node,
                    "pid": 50 + node,
                    "cpu_s": node * at_s / 10,
                }
                file.write(json.dumps(row | {"memory_bytes": 10**8, "gpu_bytes": None}) + "\n")
    return write_report(path)


@pytest.mark.soak
@on_a_phone_in_full
def test_what_processes_took_is_drawn_and_the_choice_stands_in_the_address(sampled: Path, opened: Open) -> None:
    page = opened(sampled.as_uri())
    charts = page.locator("#resources svg")
    charts.nth(1).wait_for()
    assert charts.count() == 2
    assert charts.first.locator("text", has_text=re.compile("^node")).count() == 6
    page.get_by_role("combobox", name="processes", exact=True).select_option("node 7")
    again = opened(page.url)
    assert again.get_by_role("combobox", name="processes", exact=True).input_value() == "node 7"
    again.locator("#resources svg text", has_text="node 7").first.wait_for()
    assert again.locator("#resources svg text", has_text=re.compile("^node")).count() == 2
    check_fits(again)
    check_axe(again, "#resources")


@pytest.fixture(scope="module")
def logged(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a list with a run whose processes printed something."""
    out = tmp_path_factory.mktemp("logged") / "runs/logged"
    shutil.copytree(folder / "stalled", out)
    (out / "logs").mkdir()
    (out / "logs/000.log").write_text("began\nWARNING: slow disk\n")
    (out / "logs/003.log").write_text("began\nValueError: no such thing\nDEBUG detail\n")
    with started("serve", out.parent, "--no-browser") as (address, _):
        yield address


@pytest.mark.soak
@on_a_phone_in_full
def test_one_log_of_all_nodes_is_searched(logged: str, opened: Open) -> None:
    page = opened(logged)
    page.locator("#list .place a").click()
    lines = page.locator("#logs-text .log")
    page.locator("#logs", has_text="5 of 5 lines").wait_for()
    page.get_by_role("combobox", name="level", exact=True).select_option("warning")
    assert lines.all_inner_texts() == ["node 0: WARNING: slow disk\n", "node 3: ValueError: no such thing\n"]
    page.get_by_role("combobox", name="of", exact=True).select_option("node 3")
    assert lines.count() == 1
    page.get_by_role("combobox", name="level", exact=True).select_option("")
    page.locator("#find-log").fill("BEGAN")
    assert lines.all_inner_texts() == ["node 3: began\n"]
    check_fits(page)


@pytest.mark.soak
@on_a_phone_in_full
def test_classes_of_data_have_a_legend_and_no_column_of_one_word(fabricated: Path, opened: Open) -> None:
    page = opened(fabricated.as_uri())
    assert page.locator("#data-of-nodes .key span").all_inner_texts() == [f"class {i}" for i in range(10)]
    colors = page.locator("#data-of-nodes .key span").evaluate_all(
        "(all) => all.map((each) => getComputedStyle(each, '::before').backgroundColor)"
    )
    assert len(set(colors)) == 10
    narrow = (
        "[...document.querySelectorAll('td')].filter((each) => each.offsetParent && each.innerText.length > 24"
        " && each.getBoundingClientRect().width < 180).map((each) => each.innerText)"
    )
    assert page.evaluate(narrow) == []
    with on_a_phone(page):
        assert page.evaluate(narrow) == []


@pytest.fixture(scope="module")
def fabricated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(fabricate_run(tmp_path_factory.mktemp("made"), 6, 5).path)


def test_a_page_without_data_shows_no_empty_boxes(folder: Path, browser: Any) -> None:
    with started("serve", folder / "lossy", "--no-browser") as (address, _):
        page = browser.new_page()
        held: list[Any] = []
        page.route("**/events", lambda route: held.append(route))  # the answer never comes
        page.goto(address)
        page.get_by_text("waiting for the first figures").wait_for()
        for width in (WIDE, PHONE):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.locator("h2").filter(visible=True).count() == 0
            assert page.locator("canvas").filter(visible=True).count() == 0
            assert page.inner_text("#verdict").lower() == "opening"
            check_fits(page)
        for each in held:
            each.abort()
        page.close()
