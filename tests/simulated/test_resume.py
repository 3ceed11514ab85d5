"""A simulated run that was killed goes on to the hash of the run left alone, and trains no round twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest
from small_scenario import small

from netdfl.core.errors import InputError
from netdfl.record.run import open_run
from netdfl.running.run import resume, run
from netdfl.training.sgd import LocalSgd
from tests.soak.resume import trial

SETS = (
    "task={kind: quadratic, dim: 8, noise: 0.1}",
    "algorithm={name: dfedavgm, local_epochs: 2}",
    "rounds=10",
    "world.compute=100ms",
    "links={default: {loss: 10%, latency: 5ms}}",
    "wait.deadline=200ms",
    "checkpoint.every=3",
)


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of local rounds that were computed."""
    monkeypatch.setattr("netdfl.report.html.write_report", lambda path: path)
    trained, solve = [0], LocalSgd.solve

    def counting(*args: object) -> object:
        trained[0] += 1
        return solve(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalSgd, "solve", counting)
    return trained


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has ended, made once: the tests resume copies of it."""
    return run(small(*SETS), out=tmp_path_factory.mktemp("ended") / "run", page=False).path


@pytest.fixture
def killed(ended: Path, tmp_path: Path) -> Path:
    """A run that has all but its result."""
    shutil.copytree(ended, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    return tmp_path / "run"


@pytest.fixture(scope="module")
def hash_of_it(ended: Path) -> str:
    """The hash of the run that ended."""
    return str(open_run(ended).result["event_log_hash"])


def test_local_rounds_that_fill_a_file_are_not_computed_again(count: list[int], tmp_path: Path) -> None:
    first = run(small(*SETS), out=tmp_path / "run")
    assert count == [40]
    (first.path / "result.json").unlink()
    again = resume(first.path)
    assert count == [40 + 4]
    assert again.result["event_log_hash"] == first.result["event_log_hash"]
    assert {k: v for k, v in again.result.items() if k != "duration_s"} == {
        k: v for k, v in first.result.items() if k != "duration_s"
    }


@pytest.mark.usefixtures("count")
def test_any_part_of_the_files_will_do(killed: Path, hash_of_it: str) -> None:
    for file in sorted((killed / "checkpoints").glob("*-000002.safetensors"))[:3]:
        file.unlink()
    (killed / "checkpoints" / "000-000001.safetensors").unlink()
    assert resume(killed).result["event_log_hash"] == hash_of_it


@pytest.mark.usefixtures("count")
def test_a_damaged_file_is_named_with_what_to_do_and_that_helps(killed: Path, hash_of_it: str) -> None:
    damaged = killed / "checkpoints" / "002-000001.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-5])
    with pytest.raises(InputError, match=r"002-000001.* delete it, and its local rounds are trained again"):
        resume(killed)
    damaged.unlink()
    assert resume(killed).result["event_log_hash"] == hash_of_it


def test_a_node_that_rejoined_without_mass_does_so_again(count: list[int], tmp_path: Path) -> None:
    lost = "events=[{at_round: 4, crash: 2, restart_after: 40ms, state: lost}]"
    push = ("algorithm={name: sgp, local_steps: 2}", "topology={kind: random_push, out_neighbors: 2}", lost)
    first = run(small(*SETS, *push, "checkpoint.every=1"), out=tmp_path / "run")
    (first.path / "result.json").unlink()
    trained = count[0]
    again = resume(first.path)
    assert again.result["event_log_hash"] == first.result["event_log_hash"]
    assert again.result["restarts"] == first.result["restarts"]
    assert count == [trained]


def test_without_checkpoints_a_run_begins_again(count: list[int], tmp_path: Path) -> None:
    first = run(small(*SETS[:-1]), out=tmp_path / "run")
    (first.path / "result.json").unlink()
    assert not (first.path / "checkpoints").exists()
    assert resume(first.path).result["event_log_hash"] == first.result["event_log_hash"]
    assert count == [80]


def test_a_run_that_has_ended_is_not_resumed(ended: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has ended with verdict done; to have more rounds"):  # it trains no model
        resume(ended)
    with pytest.raises(InputError, match="is not a run"):
        resume(tmp_path)


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_killed_at_a_random_moment(number: int) -> None:
    assert trial(Random(f"ci-{number}"), number) is None


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 4))])
def test_a_node_that_returns_takes_no_share_twice(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its neighbors send again what it had read before it crashed; mass may be missing then, and is never made."""
    monkeypatch.setattr("netdfl.report.html.write_report", lambda path: path)
    scenario = small(
        f"seed={seed}",
        "nodes=6",
        "rounds=16",
        "algorithm=sgp",
        "topology={kind: random_push, out_neighbors: 3}",
        "delivery={kind: acknowledged, timeout: 60ms}",
        "wait.deadline=300ms",
        "world.compute=100ms",
        "links={default: {loss: 25%, latency: 5ms}}",
        "events=[{at_round: 6, crash: 2, restart_after: 40ms}]",
        "failure_detector=none",
        "expect.stall=any",
    )
    result = run(scenario, out=tmp_path / "run").result
    assert 0.5 < result["weight_sum"] < 1 + 1e-9


@pytest.mark.parametrize("page", [True, False])
def test_a_resumed_run_has_a_page_where_one_is_asked_for(page: bool, killed: Path) -> None:
    """One that was made before it was killed, or by hand, is no page of what it is now."""
    if not page:
        (killed / "report.html").write_text("a page of before")
    resume(killed, page=page)
    assert (killed / "report.html").exists() is page
