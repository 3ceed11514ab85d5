"""Curves of runs beside each other and of one run: their axes and their legends."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netdfl.record.run import open_run
from netdfl.report.data import page_data
from netdfl.report.html import fill
from netdfl.running.run import run
from netdfl.scenario.load import loads
from tests.agreeing import agreeing
from tests.web.conftest import Open
from tests.web.fitting import on_a_phone_in_full
from tests.web.web_server import started

SMALL = agreeing("small", 4, 6, "seed: 3\nlinks: {default: {latency: 5ms}}", compute="10ms")
RECORDED = """() => {
  window.labels = [];
  const { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
    if (this.textAlign === "right") window.labels.push(text);
    return fillText.call(this, text, ...more);
  };
}"""
"""From now on the labels of vertical axes are kept."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("curves") / "runs"
    for name, sets in {"one": ["seed=1"], "two": ["seed=2"], "again": ["seed=1"], "wide": ["task.dim=5"]}.items():
        run(loads(SMALL, sets), out=root / name, page=False)
    return root


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    with started("serve", runs, "--no-browser") as (found, _):
        yield found


def between(low: float, high: float, number: int) -> list[float]:
    return [low * (high / low) ** (place / (number - 1)) for place in range(number)]


def check_labels(page: Any) -> None:
    """Some labels of the vertical axis, the lowest first, and no two alike."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    labels = list(dict.fromkeys(page.evaluate("window.labels.splice(0)")))  # a chart is drawn more than once
    assert 3 <= len(labels) <= 9
    assert labels == sorted(set(labels), key=float)


@on_a_phone_in_full
@pytest.mark.parametrize(
    ("low", "high"), [(0.00012, 0.00013), pytest.param(0.021, 0.098, marks=pytest.mark.soak), (3e-9, 20.0)]
)
def test_a_logarithmic_axis_has_labels_whatever_it_spans(
    runs: Path, opened: Open, tmp_path: Path, low: float, high: float
) -> None:
    data = page_data(open_run(runs / "one"))
    curve = data["curves"]["error"]
    curve["value"] = between(low, high, len(curve["value"]))
    (tmp_path / "page.html").write_text(fill({**data, "curves": {"error": curve}}, "default-src 'none'; img-src data:"))
    page = opened((tmp_path / "page.html").as_uri())
    axis = page.locator("figure.chart", has_text="Error").get_by_role("combobox", name="axis", exact=True)
    assert axis.input_value() == "log"
    page.evaluate(RECORDED)
    axis.select_option("log")
    axis.dispatch_event("change")
    check_labels(page)


@pytest.mark.soak
@on_a_phone_in_full
def test_a_logarithmic_axis_of_compared_runs_has_labels_on_the_page_and_taken_home(address: str, opened: Open) -> None:
    def answered(route: Any) -> None:
        answer = route.fetch()
        found = answer.json()
        for curves in found["curves"].values():
            curves["error"]["value"] = between(0.31, 0.38, len(curves["error"]["value"]))
        route.fulfill(response=answer, body=json.dumps(found))

    page = opened(f"{address}#curve=error&scale=log")
    page.evaluate(RECORDED)
    page.route("**/curves?*", answered)
    page.get_by_role("button", name="compare all that fit").click()
    page.locator("#beside .u-wrap").wait_for()
    check_labels(page)
    with page.expect_download() as download:
        page.locator("#beside .tools").first.get_by_role("button", name="save as SVG").click()
    saved = re.findall('text-anchor="end"[^>]*>([^<]+)<', Path(download.value.path()).read_text())
    assert 3 <= len(saved) <= 9
    assert saved == sorted(set(saved), key=float)


@on_a_phone_in_full
@pytest.mark.parametrize(
    ("ticked", "curves"),
    [
        (["one", "two"], ["small (mean of 2: seeds 1, 2)"]),
        (["one", "again"], ["one", "again"]),
        (["two", "wide"], ["small, task.dim: 2 · two", "small, task.dim: 5 · wide"]),
    ],
)
def test_a_legend_says_which_run_is_which(address: str, opened: Open, ticked: list[str], curves: list[str]) -> None:
    page = opened(f"{address}#curve=error")
    for name in ticked:
        page.get_by_label(f"compare {name}", exact=True).check()
    page.get_by_text("2 runs beside each other").wait_for()
    labels = page.locator("#beside .u-legend .u-label").all_inner_texts()
    assert [label for label in labels if label not in ("round", "highest", "lowest")] == curves
    page.get_by_role("combobox", name="seeds", exact=True).select_option("each")
    labels = page.locator("#beside .u-legend .u-label").all_inner_texts()
    assert [label.rpartition(" · ")[2] for label in labels[1:]] == ticked


def test_no_two_ticks_of_an_axis_and_no_two_stalls_have_the_same_words(
    runs: Path, opened: Open, tmp_path: Path
) -> None:
    data = page_data(open_run(runs / "one"))
    took = {"cores": [0.9, 0.9001, 0.9002], "memory_bytes": [281.0e6, 281.3e6, 281.6e6], "gpu_bytes": None}
    processes = [took | {"name": "supervisor"}]
    data["resources"] = {"at_s": [0.0, 1.0, 2.0], "num_processes": 1, "processes": processes, "total": took}
    stall = {"round": 3, "roots": [0], "witness": [[0, 1]], "began_s": 0.0869, "found_s": 0.0869, "permanent": False}
    stall |= {"text": "node 0 waits", "cause": "lost_message", "nodes": [0, 1], "num_nodes": 2, "waits": [[0, 1]]}
    stall |= {"since": {}, "until_s": None, "over": True}
    data["stalls"] = [
        stall | {"culprits": [1]},
        stall | {"culprits": [3]},
        stall | {"culprits": [], "roots": [*range(4)]},
    ]
    (tmp_path / "page.html").write_text(fill(data, "default-src 'none'; img-src data:"))
    page = opened((tmp_path / "page.html").as_uri())
    page.locator("#resources svg").nth(1).wait_for()
    for chart in page.locator("#resources svg").all():
        words = chart.locator("text[text-anchor=end]").all_text_contents()
        assert len(words) == len(set(words)) > 2, words
    said = page.locator("#stalls button").all_inner_texts()
    since = "since 86.9 ms, over"
    assert said == [
        f"lost message in round 3: node 0 for node 1, {since}",
        f"lost message in round 3: node 0 for node 3, {since}",
        f"lost message in round 3: 4 nodes, {since}",
    ]
