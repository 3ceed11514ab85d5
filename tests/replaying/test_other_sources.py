"""Two runs of one scenario may be two experiments: whoever sets them side by side is told which sources differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import netdfl
from netdfl.collection.comparing import compare
from netdfl.collection.listing import ListRequest, list_runs
from netdfl.collection.sql import asked
from netdfl.collection.terminal import compared_lines, group_lines, run_lines
from netdfl.record.provenance import PROVENANCE, differing_sources, read_sources
from netdfl.record.run import open_run
from netdfl.replaying.diff import diff
from netdfl.web import many

SCENARIO = """
schema: netdfl/1
name: edited
nodes: 3
rounds: 2
world: {kind: simulated, compute: {kind: "pace:steady"}}
task: {kind: consensus, dim: 2}
algorithm: dpsgd
topology: {kind: edge_list, file: graph.csv}
"""


@pytest.fixture
def made(tmp_path: Path) -> Callable[[str, int], Path]:
    """Makes a run with a compute time of so many ns, and returns its directory."""

    def make(name: str, ns: int) -> Path:
        (tmp_path / "graph.csv").write_text("0,1\n1,2\n")
        (tmp_path / "pace.py").write_text(f"def steady(streams, /):\n    return lambda node, round: {ns}\n")
        (tmp_path / "s.yaml").write_text(SCENARIO)
        return netdfl.run(netdfl.load(tmp_path / "s.yaml"), out=tmp_path / name, page=False).run.path

    return make


def test_an_edited_module_is_named_wherever_two_runs_are_compared(
    made: Callable[[str, int], Path], tmp_path: Path
) -> None:
    first, second = made("first", 1000), made("second", 90_000)
    (line,) = (each for each in compared_lines(compare({"a": first, "b": second})) if each.startswith("pace.py"))
    page = many.compare([("a", first), ("b", second)], tmp_path)
    shown = page["differences"]["pace.py"]
    assert page["groups"]["a"] != page["groups"]["b"]
    assert line.split() == ["pace.py", shown["a"], shown["b"]]
    text = diff(open_run(first), open_run(second)).text
    assert f"they were made with other sources, by digest or version:\n  pace.py             {shown['a']}" in text
    again = made("again", 1000)
    assert compared_lines(compare({"a": first, "b": again}))[-1].startswith("they are made alike")
    assert "other sources" not in diff(open_run(first), open_run(again)).text


def test_sources_are_known_by_name_and_versions_by_package(made: Callable[[str, int], Path]) -> None:
    path = made("first", 1000)
    first = read_sources(path)
    assert first is not None
    file = path / PROVENANCE
    file.write_text(file.read_text().replace("/pace", "/elsewhere/pace"))
    assert read_sources(path) == first
    updated = {**first, "numpy": "1.0"}
    assert differing_sources({"a": first, "b": updated, "c": None}) == {"numpy": {"a": first["numpy"], "b": "1.0"}}
    file.unlink()
    assert read_sources(path) is None


def test_a_list_tells_runs_of_two_texts_of_a_module_apart(made: Callable[[str, int], Path], tmp_path: Path) -> None:
    for name, ns in (("a", 1000), ("b", 90_000), ("c", 1000)):
        made(name, ns)
    (tmp_path / "c" / PROVENANCE).unlink()
    rows = {row.place: row.value("pace.py") for row in list_runs(tmp_path, ListRequest()).rows}
    assert rows["c"] is None
    assert rows["a"] != rows["b"]
    found = list_runs(tmp_path, ListRequest(by="algorithm"))
    assert found.keys == ["pace.py"]
    assert "pace.py" in run_lines(found, 9)[0]
    assert group_lines(found, 9)[-1] == "each mean is over runs that may differ in pace.py"
    apart = list_runs(tmp_path, ListRequest(by="pace.py", filter=f"pace.py != {rows['a']}"))
    assert [(group.value, group.differ) for group in apart.groups()] == [(rows["b"], [])]
    sql = "select value, count(*) from runs join keys using (run) where key = 'pace.py' group by 1"
    with asked(tmp_path, sql) as answer:
        assert dict(answer.rows()) == {rows["a"]: 1, rows["b"]: 1}
