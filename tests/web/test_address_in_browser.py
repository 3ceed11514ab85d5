"""What is chosen on the page of a run stands in its address; the links of the moment's round."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from netdfl.record.run import open_run
from netdfl.report.html import write_report
from netdfl.running.run import run
from netdfl.scenario.load import load, loads
from tests.agreeing import agreeing
from tests.web.conftest import Open
from tests.web.fitting import at_both_widths, on_a_phone_in_full
from tests.web.web_server import started

LOSSY = """
seed: 5
wait: {deadline: 60ms}
delivery: plain
links: {default: {latency: 5ms, loss: 15%}}
"""
DRAWN = "{kind: random_push, out_neighbors: 1, redraw_every: 1}"
SHOWN = {
    "nodes by": "bytes_sent",
    "links by": "nbytes",
    "links": "round",
    "lanes": "near",
    "level": "warning",
    "of": "node 0",
}
"""Values of lists that are chosen on a run's page."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs: with a log; with a graph drawn in each round and acknowledgements against its links; with a stall."""
    root = tmp_path_factory.mktemp("addressed")
    run(loads(agreeing("lossy", 6, 12, LOSSY, compute="10ms")), out=root / "lossy", page=False)
    (root / "lossy/logs").mkdir()
    (root / "lossy/logs/000.log").write_text("began\nWARNING: slow disk\n")
    acknowledged = LOSSY.replace("delivery: plain", "")
    drawn = agreeing("drawn", 6, 12, acknowledged, compute="10ms", topology=DRAWN).replace("dpsgd", "osgp")
    run(loads(drawn), out=root / "drawn", page=False)
    run(load("scenarios/faults/straggler.yaml", on="simulated"), out=root / "late", page=False)
    return root


def file_of(folder: Path, name: str) -> str:
    return write_report(folder / name).as_uri()


@on_a_phone_in_full
def test_what_is_shown_stands_in_the_address_and_a_reload_keeps_it(folder: Path, opened: Open) -> None:
    page = opened(file_of(folder, "lossy"))
    page.locator("#handle").fill("40")
    page.locator("#find-link").fill("0-1")
    page.keyboard.press("Enter")
    page.get_by_role("combobox", name="by", exact=True).select_option("time")
    box = page.locator("figure.chart", has_text="Consensus distance").get_by_role("combobox", name="axis", exact=True)
    assert box.input_value() == "log"
    box.select_option("linear")
    page.get_by_role("combobox", name="smoothing", exact=True).select_option("3")
    assert box.input_value() == "linear"
    for name, value in SHOWN.items():
        page.get_by_role("combobox", name=name, exact=True).select_option(value)
    page.locator("#find-log").fill("none")
    said = page.inner_text("#moment")
    page.wait_for_url(re.compile("at="))
    again = opened(page.url)
    box = again.locator("figure.chart", has_text="Consensus distance").get_by_role("combobox", name="axis", exact=True)
    assert box.input_value() == "linear"
    for name, value in SHOWN.items():
        assert again.get_by_role("combobox", name=name, exact=True).input_value() == value
    assert again.locator("#find-log").input_value() == "none"
    again.get_by_text("0 of 2 lines").wait_for()
    assert again.inner_text("#moment") == said
    assert "Link 0 → 1" in again.inner_text("#panel")
    assert again.get_by_role("combobox", name="by", exact=True).input_value() == "time"
    assert again.get_by_role("combobox", name="smoothing", exact=True).input_value() == "3"
    again.locator("#reset").click()
    assert again.get_by_role("combobox", name="by", exact=True).input_value() == "round"
    assert "x=" not in again.url
    assert box.input_value() == "log"
    assert "scale" not in again.url
    again.evaluate("location.hash = 'nodes_by=phase&scale.consensus-distance=linear'")  # a link that is opened here
    again.wait_for_function("document.querySelector('#fleet select').value === 'phase'")
    assert box.input_value() == "linear"


@pytest.mark.soak
@on_a_phone_in_full
def test_the_links_of_this_round_are_those_of_the_round_of_the_moment(folder: Path, opened: Open) -> None:
    page, found = opened(f"{file_of(folder, 'drawn')}#links=round"), open_run(folder / "drawn")
    edges = "SELECT DISTINCT src, dst FROM messages WHERE kind = 'data' AND round = $round"
    for place in (60, 150, 300):
        page.locator("#handle").fill(str(place))
        round = int(page.inner_text("#moment").rpartition("round ")[2])
        page.locator("#fleet .scale", has_text=f"links of round {round}").wait_for()
        drawn = page.evaluate(
            "document.querySelector('.graph').graph.edges().filter((each) => each.data('opacity') > 0)"
            ".map((each) => [each.data('src'), each.data('dst')])"
        )
        assert {tuple(each) for each in drawn} == set(found.rows(edges, {"round": round}))
        assert 0 < round < 12
        assert set(found.rows(edges, {"round": 0})) != set(found.rows(edges, {"round": round}))
        assert "graph of round 0" not in page.inner_text("body")


def pause(page: Any, ms: int) -> None:
    """Wait by the page's own timers, which come in order: on a busy machine what is due before has been done, too."""
    page.evaluate("(ms) => new Promise((done) => setTimeout(done, ms))", ms)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))")


def at(page: Any) -> float:
    """The moment that the address has, once the page has written it there."""
    pause(page, 260)  # the page writes it a quarter of a second after the last change
    return float(parse_qs(urlsplit(page.url).fragment)["at"][0])


@pytest.fixture(params=["report.html", pytest.param("served", marks=pytest.mark.soak)])
def late(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """The address of the page of a run whose stall begins between two steps of the handle."""
    if request.param == "served":
        with started("serve", folder / "late", "--no-browser") as (address, _):
            yield address
    else:
        yield file_of(folder, "late")


@pytest.mark.soak
@on_a_phone_in_full
def test_every_way_to_a_moment_keeps_it_exactly(folder: Path, late: str, opened: Open) -> None:
    page, found = opened(late), open_run(folder / "late")
    page.locator("[data-stall='0']").click()
    began_s = json.loads((folder / "late/stalls/000.json").read_text())["finding"]["began_s"]
    assert at(page) == began_s
    began = f"{1000 * began_s:g} ms"
    assert page.inner_text("#moment").startswith(f"{began}, round")
    assert f"The handle is where it began, at {began};" in page.inner_text("#stall")
    ((ended_s,),) = found.rows("SELECT max(until_s) FROM waits WHERE node IN (1, 3) AND since_s <= ?", [began_s])
    assert f"It ended at {ended_s:.3g} s." in page.inner_text("#stall")
    assert "at the latest" not in page.inner_text("#stall")
    again = opened(page.url)
    again.locator("#moment", has_text=f"{began}, round").wait_for()
    again.locator("#find-node").fill("1")
    again.keyboard.press("Enter")
    again.locator("#find-link").fill("0-1")
    again.keyboard.press("Enter")
    assert at(again) == began_s
    again.evaluate("location.hash = 'stall=0&at=0.0567'")  # a link that is opened here
    again.locator("#moment", has_text="56.7 ms").wait_for()
    assert at(again) == 0.0567
    assert f"It began at {began};" in again.inner_text("#stall")
    ((sent, under_way),) = found.rows(
        "SELECT count(*), count(*) FILTER (arrived_s > 0.0567) FROM messages WHERE sent_s <= 0.0567"
    )
    assert again.inner_text("#counts").startswith(f"{sent} messages sent (")
    assert again.inner_text("#counts").endswith(f"{under_way} on their way")
    again.locator("#handle").press("ArrowRight")
    first = at(again)
    assert first > 0.0567
    again.locator("#handle").press("ArrowRight")
    step = at(again) - first
    again.locator("#handle").press("ArrowLeft")
    assert at(again) == first
    again.locator("#bar button", has_text="play").click()
    again.locator("#moment", has_text=re.compile(r"^(\d{3} ms|[\d.]+ s),")).wait_for()
    again.locator("#bar button", has_text="stop playing").click()
    assert (at(again) - first) / step == pytest.approx(round((at(again) - first) / step), abs=1e-6)


@pytest.mark.soak
@on_a_phone_in_full
def test_a_click_in_the_lanes_sets_the_moment_to_a_pixel(folder: Path, opened: Open) -> None:
    page = opened(file_of(folder, "late"))
    lanes = page.locator("#lanes canvas")
    wide = lanes.evaluate("(lanes) => lanes.clientWidth")
    end_s = page.evaluate("JSON.parse(document.getElementById('data').textContent).frame.moments.at(-1)")
    pixel_s, found = end_s / (wide - 66), []  # the margins of the lanes: 62 and 4
    for x in (100, 101):
        lanes.click(position={"x": x, "y": 5})
        found.append(at(page))
        assert found[-1] == pytest.approx((x - 62) * pixel_s, abs=1.1 * pixel_s)
    assert found[0] < found[1]


@pytest.mark.soak
@on_a_phone_in_full
def test_a_link_shows_the_part_of_the_lanes_that_one_looks_at(folder: Path, opened: Open) -> None:
    def drawn(page: Any) -> str:
        pause(page, 300)
        return str(page.locator("#lanes canvas").evaluate("(lanes) => lanes.toDataURL()"))

    page = opened(file_of(folder, "late"))
    whole = drawn(page)
    page.get_by_role("button", name="closer").click()
    page.get_by_role("button", name="closer").click()
    assert "zoom=" in page.url
    closer = drawn(page)
    assert closer != whole
    assert drawn(opened(page.url)) == closer
    page.get_by_role("button", name="whole run").click()
    assert "zoom=" not in page.url
    assert drawn(page) == whole


@at_both_widths
def test_a_link_to_a_stall_shows_its_sentence_below_the_bar_of_time(folder: Path, opened: Open) -> None:
    page = opened(f"{file_of(folder, 'late')}#stall=0")
    page.locator("#stall .sentence").wait_for()
    pause(page, 300)  # for the page to scroll
    bar, sentence = (page.locator(each).bounding_box() for each in ("#bar", "#stall .sentence"))
    assert bar["y"] + bar["height"] <= sentence["y"] + 1
    assert sentence["y"] + sentence["height"] <= 900
