"""The report page: one file, the verdict first, every section, whatever the run left."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pydantic_core import to_json

from netdfl.core.errors import InputError
from netdfl.record.directory import RunDirectory
from netdfl.record.run import Run, open_run
from netdfl.report.data import page_data
from netdfl.report.data.measured import MEASURED
from netdfl.report.data.sections import SECTIONS
from netdfl.report.html import fill, render, style, write_report

LOADING = {"src", "href", "xlink:href", "srcset", "data", "poster", "action"}
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """Collects what a page would load, and checks that its elements close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in LOADING]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in LOADING]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


@pytest.fixture(scope="module")
def page(run: Run) -> str:
    return write_report(run.path).read_text(encoding="utf-8")


def test_the_page_lies_in_the_run_and_loads_nothing(run: Run, page: str) -> None:
    assert (run.path / "report.html").is_file()
    parsed = Page(page)
    assert "iframe" not in parsed.tags
    assert all(load.startswith(("#", "data:")) for load in parsed.loads)
    assert parsed.loads
    assert "@import" not in style()
    assert "url(" not in style()


def test_nothing_but_the_pages_own_script_runs_in_it(page: str) -> None:
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src &#39;none&#39;; img-src data:; script-src &#39;sha256-")
    assert "unsafe" not in policy
    assert page.count("<script") == 2


def test_the_verdict_and_its_reasons_come_before_all_else(run: Run, page: str) -> None:
    head = unescape(page[: page.index("<main")])
    for text in (
        "<strong>fail</strong>",
        "node 5 died in round 25: killed by SIGKILL",
        "test_accuracy was expected to be at least 95%",
        f"in the folder {run.path.name}",
    ):
        assert text in head


def test_what_stands_between_backticks_is_code_and_nothing_else_is_markup(run: Run) -> None:
    data = page_data(run)
    text = fill({**data, "head": {**data["head"], "reasons": ["`for: <b>` or `any` would `go"]}}, "")
    assert "<li><code>for: &lt;b&gt;</code> or <code>any</code> would `go</li>" in text


def test_every_section_is_there(run: Run, page: str) -> None:
    titles = [section.title for make in SECTIONS if (section := make(run)) is not None]
    assert len(titles) == len(SECTIONS) - len(MEASURED)
    assert re.findall(r"<h2>(.*)</h2>", page[: page.index("application/json")]) == [*titles, "The scenario"]


def test_the_dead_are_shown_with_who_waited(run: Run, page: str) -> None:
    row = page[page.index("Nodes that died") :]
    assert "node 3 (round 25), node 4 (round 25)" in row[: row.index("</table>")]
    assert page_data(run)["fleet"]["died"] == [5]


def test_what_the_run_wrote_is_escaped(page: str) -> None:
    assert "&lt;script&gt;&amp;" in page
    assert "# <script>" not in page


def test_the_data_in_the_page_are_the_data_of_the_run(run: Run, page: str) -> None:
    (within,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert json.loads(within) == json.loads(to_json(page_data(run)))


def test_the_same_run_gives_the_same_page(run: Run, page: str) -> None:
    assert render(run) == page


def test_the_page_does_not_depend_on_how_rows_of_one_time_are_stored(run: Run, page: str, tmp_path: Path) -> None:
    copy = tmp_path / run.path.name
    shutil.copytree(run.path, copy)
    for file in copy.rglob("*.jsonl"):
        file.write_text("".join(reversed(file.read_text().splitlines(keepends=True))))
    assert render(open_run(copy)) == page


def test_a_run_still_going_on_has_a_page_without_a_verdict(run: Run, tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "q", 1, out=tmp_path / "young")
    directory.write("scenario.yaml", "nodes: 4\n")
    text = render(open_run(directory.path))
    assert "no verdict" in text
    assert "still going on, or it was killed" in text
    shutil.copytree(run.path / "store", directory.path / "store", dirs_exist_ok=True)
    directory.write_json("fleet.json", run.fleet)
    text = render(open_run(directory.path))
    assert "20 of 50 rounds done" in text
    assert "<h2>Learning</h2>" in text


def test_a_page_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a run"):
        write_report(tmp_path)


@pytest.mark.parametrize(
    "graph",
    [
        {"num_nodes": 1, "edges": [], "directed": False, "server": None, "kind": "full"},
        {"num_nodes": 4, "edges": [[0, 1], [1, 0], [2, 3]], "directed": False, "server": None, "kind": "edges"},
        {"num_nodes": 5, "edges": [[4, i] for i in range(4)], "directed": True, "server": 4, "kind": "star"},
        {"num_nodes": 3, "edges": [[0, 1], [1, 2], [2, 0]], "directed": True, "kind": "directed_ring"},
    ],
    ids=["lonely", "in pieces", "star", "ring"],
)
def test_any_graph_has_places_that_differ(tmp_path: Path, graph: dict[str, object]) -> None:
    directory = RunDirectory.create(tmp_path, "q", 1, out=tmp_path / "run")
    directory.write("scenario.yaml", "")
    directory.write_json("graph.json", graph)
    drawn = page_data(open_run(directory.path))["fleet"]
    places = set(zip(drawn["x"], drawn["y"], strict=True))
    assert len(places) == graph["num_nodes"]
    assert all(abs(number) <= 1 for place in places for number in place)
    assert len(drawn["src"]) == len(graph["edges"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("nodes", "classes"),
    [
        (2, 2),
        pytest.param(50, 10, marks=pytest.mark.soak),  # test_large_fleets.py has pages of larger ones
        (8, 100),
        pytest.param(200, 10, marks=pytest.mark.soak),
    ],
)
def test_small_and_large_fleets_make_a_page_of_a_sane_size(fabricate, nodes: int, classes: int) -> None:
    run = fabricate(nodes=nodes, rounds=3, dead=None, classes=classes)
    text = render(run)
    Page(text)
    assert len(text) < 2_000_000
    assert "Nodes that died" not in text
