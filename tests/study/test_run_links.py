"""A sweep names its runs by links: those of its table alone, each by another name, and in copies of its folder, too."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

import pytest
from rich.console import Console

import netdfl
from netdfl.study.cells import CellResult
from netdfl.study.plan import Cell
from netdfl.study.run_links import link_runs, name_run
from netdfl.study.sweep import sweep
from tests.in_process import InProcess
from tests.study.test_changed_sources import SCENARIO

pytestmark = pytest.mark.usefixtures("undrawn")


def swept(folder: Path, *vary: str, seeds: int = 2, sets: tuple[str, ...] = ()) -> str:
    """Sweep in `folder`; return what was printed."""
    own, said = SCENARIO.replace("{kind: edge_list, file: graph.csv}", "ring"), io.StringIO()
    (folder / "s.yaml").write_text(own.replace('{kind: "pace:steady"}', "1ms"))
    console = Console(file=said, width=300)
    assert not sweep(
        folder / "s.yaml", vary, sets, out=folder, seeds=seeds, jobs=1, console=console, make_runner=InProcess
    )
    return said.getvalue()


def rounds_of(links: Path) -> dict[str, int]:
    return {each.name: netdfl.open_run(each).result["rounds"] for each in links.iterdir()}


def test_links_are_to_the_runs_of_the_table_alone(tmp_path: Path) -> None:
    """Whose program opens `runs/*` would mix them with those of the sweep before, under the same kind of name."""
    swept(tmp_path, "links.default.loss=0,10%")
    links = tmp_path / "changed" / "runs"
    assert rounds_of(links) == {f"loss-{loss}_seed-{seed}": 3 for loss in ("0", "10%") for seed in (0, 1)}
    (links / "notes.txt").write_text("mine")
    (links / "elsewhere").symlink_to("/tmp")
    swept(tmp_path, "links.default.loss=0", seeds=1, sets=("rounds=5",))
    assert (links / "notes.txt").read_text() == "mine"
    (links / "notes.txt").unlink()
    (links / "elsewhere").unlink()
    assert rounds_of(links) == {"loss-0_seed-0": 5}


def test_a_copy_that_followed_the_links_can_be_swept_on(tmp_path: Path) -> None:
    """As `scp -r` and most programs for archives do."""
    swept(tmp_path, seeds=1)
    shutil.copytree(tmp_path / "changed" / "runs", tmp_path / "followed")
    shutil.rmtree(tmp_path / "changed" / "runs")
    (tmp_path / "followed").rename(tmp_path / "changed" / "runs")
    said = swept(tmp_path, seeds=2)
    assert (
        f"1 of the runs have no link in {tmp_path}/changed/runs, as something else has their names, such as seed-0"
        in said
    )
    assert (tmp_path / "changed" / "runs" / "seed-1").is_symlink()
    assert "2 cells, 0 failed" in said


def test_where_there_are_no_links_the_tables_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, os.strerror(1))

    monkeypatch.setattr(Path, "symlink_to", refuse)
    monkeypatch.setattr("os.symlink", refuse)
    said = swept(tmp_path)
    assert (
        f"{tmp_path}/changed/runs has no links to the runs in {tmp_path}/changed/cells: Operation not permitted" in said
    )
    assert (tmp_path / "changed" / "table.md").exists()


def test_no_two_runs_have_one_name(tmp_path: Path) -> None:
    paths = [tmp_path / "cells" / name for name in "ab"]
    cells = [Cell("", (("algorithm.shift", value),), 0, ()) for value in ("-0.1", "0.1")]
    ran = [CellResult(cell, path, 0, {}) for cell, path in zip(cells, paths, strict=True)]
    assert link_runs(ran, tmp_path / "runs") == ""
    assert sorted(os.readlink(each) for each in (tmp_path / "runs").iterdir()) == ["../cells/a", "../cells/b"]


@pytest.mark.parametrize("value", ["x" * 300, "10%"])
def test_a_name_ends_with_the_seed(value: str) -> None:
    name = name_run(Cell("", (("links.default.loss", value),), 12, ()))
    assert name.endswith("_seed-12")
    assert len(name) <= 200
