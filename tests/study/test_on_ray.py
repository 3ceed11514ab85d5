"""What a machine of a Ray cluster does for a run, without a cluster: it makes the run, and leaves nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from netdfl.host.plan import pack
from netdfl.record.directory import hold
from netdfl.scenario.load import load
from netdfl.study.runners import on_ray
from netdfl.study.runners.on_ray import (
    ArchivePart,
    PackedRun,
    RunDeath,
    RunEnd,
    RunMessage,
    make_here,
    own_folder,
    pack_data,
    settle,
)
from netdfl.training.data.fetch import RECIPES, FetchRecipe
from netdfl.training.data.sources import digest
from tests.warm import warm_python

SCENARIO = """
schema: netdfl/1
name: small
nodes: 4
rounds: 2
world: simulated
task: {dataset: "parts:noise", model: {name: mlp, hidden: [3]}, batch_size: 10}
algorithm: dfedavg
topology: ring
"""
PARTS = '''
import os
import signal

import numpy as np

from netdfl.training.data.dataset import Dataset


def noise(root, /):
    """Two classes of pictures, whose reading may end the process of a run."""
    if {kills} and "netdfl-run-" in __file__:
        os.kill(os.getpid(), signal.SIGKILL)
    rng = np.random.default_rng(0)

    def split(n):
        return rng.standard_normal((n, 1, 4, 4)).astype(np.float32), (np.arange(n) % 2).astype(np.int64)

    return Dataset(*split(80), *split(20), 2)
'''


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose folder for temporary files is its own."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    with mock.patch.object(on_ray.sys, "executable", warm_python()):
        yield


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A dataset that was fetched into the folder `here`; the function says whose folder counts."""
    folder = tmp_path / "here" / "pictures"
    folder.mkdir(parents=True)
    (folder / "train").write_bytes(b"many")
    made = FetchRecipe("pictures", {"train": digest(folder / "train")}, {}, {})
    monkeypatch.setitem(RECIPES, "pictures", made)  # type: ignore[arg-type]
    return lambda name: monkeypatch.setenv("NETDFL_DATA", str(tmp_path / name))


def told(folder: Path, kills: bool = False) -> list[RunMessage]:
    (folder / "small.yaml").write_text(SCENARIO)
    (folder / "parts.py").write_text(PARTS.format(kills=kills))
    return list(make_here(PackedRun(pack(load(folder / "small.yaml")), "simulated", "whole")))


def test_a_run_comes_back_in_parts_and_leaves_nothing(tmp_path: Path) -> None:
    *_, part, end = told(tmp_path)
    assert isinstance(part, ArchivePart)
    assert isinstance(end, RunEnd)
    assert end.code == 0, end.log
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_run_whose_process_is_killed_has_died_and_leaves_nothing(tmp_path: Path) -> None:
    *_, end = told(tmp_path, kills=True)
    assert isinstance(end, RunDeath)
    assert end.why.startswith("its process ended")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_what_lives_is_not(tmp_path: Path) -> None:
    place = tmp_path / "tmp"
    left, lives, other = (place / f"netdfl-run-{user}" for user in (f"{os.getuid()}-a", f"{os.getuid()}-b", "x-a"))
    for each in (left, lives, other):
        each.mkdir()
    with hold(lives), own_folder() as folder:
        assert {each.name for each in place.iterdir()} == {lives.name, other.name, folder.name}
    assert not folder.exists()


def test_data_are_asked_for_by_the_first_run_of_a_machine_alone(recipe: Callable[[str], None]) -> None:
    recipe("here")
    packed = pack_data("pictures")
    assert packed is not None
    asked: list[int] = []
    recipe("there")
    assert pack_data("pictures") is None
    for _ in range(2):
        settle("pictures", lambda: asked.append(1) or packed)
    assert asked == [1]
    assert pack_data("pictures") == packed


def test_data_that_need_no_fetching_are_not_sent() -> None:
    assert pack_data("digits") is None
