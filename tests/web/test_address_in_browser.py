"""What is chosen on the page of a run stands in its address; the links of the moment's round."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from netdfl.record.run import open_run
from netdfl.report.html import write_report
from netdfl.running.run import run
from netdfl.scenario.load import loads
from tests.agreeing import agreeing
from tests.web.conftest import Open
from tests.web.fitting import at_both_widths

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
    """Runs: one with a log, and one whose graph is drawn in each round, with acknowledgements against its links."""
    root = tmp_path_factory.mktemp("addressed")
    run(loads(agreeing("lossy", 6, 12, LOSSY, compute="10ms")), out=root / "lossy", page=False)
    (root / "lossy/logs").mkdir()
    (root / "lossy/logs/000.log").write_text("began\nWARNING: slow disk\n")
    acknowledged = LOSSY.replace("delivery: plain", "")
    drawn = agreeing("drawn", 6, 12, acknowledged, compute="10ms", topology=DRAWN).replace("dpsgd", "osgp")
    run(loads(drawn), out=root / "drawn", page=False)
    return root


def file_of(folder: Path, name: str) -> str:
    return write_report(folder / name).as_uri()


@at_both_widths
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


@at_both_widths
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
