"""Claims are decided by the rule that is written down, from rows that count, and the work on them can be stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from netdfl.core.errors import InputError
from netdfl.scenario.load import load
from netdfl.scenario.model.schema import Scenario
from netdfl.study import background
from netdfl.study.background import in_background, stop_background
from netdfl.study.cells import StudyProgress, run_all
from netdfl.study.claims import rows as rows_of_cells
from netdfl.study.claims.deciding import decide
from netdfl.study.claims.given import cells_of, read_rule, rule
from netdfl.study.claims.page import table
from netdfl.study.claims.rows import Proof, RowFolder, row_name
from netdfl.study.claims.work import BackgroundWork, ClaimStudy
from netdfl.study.keeping import source_commit
from netdfl.study.progress import StudyState, plans_of
from netdfl.study.reproduce import SCENARIOS
from netdfl.study.trials import published as published_figures
from netdfl.study.trials import scenario_of, trials
from tests.in_process import InProcess
from tests.study.claim_rows import SMALL, STAND_IN, a_row, noisy_rows, rule_of, seeds

ROOT = Path(__file__).resolve().parents[2]


def test_every_claim_is_of_cells_that_can_be_run_and_prints_what_it_says() -> None:
    claims = rule().claims
    assert len(claims) >= 10
    assert {claim.paper for claim in claims.values()} == {"000", "001", "002", "003", "004"}
    for claim in claims.values():
        better, worse = cells_of(claim).values()
        assert claim.printed > 0
        assert better.sets != worse.sets
        one, other = (load(each.file, each.cell(3).sets) for each in (better, worse))
        assert one.seed == other.seed == 3
        assert (one.task, one.rounds, one.nodes, one.evaluation.every) == (other.task, other.rounds, other.nodes, 1)
        assert one.algorithm != other.algorithm or one.topology != other.topology


def test_a_clear_gain_holds_a_clear_loss_fails_and_the_rest_is_undecided() -> None:
    found = decide(rule_of(3), {"c0": seeds(2, 2.1, 1.9), "c1": seeds(-2, -2.1, -1.9), "c2": seeds(1, -1, 0.2)})
    assert [found[name].word for name in ("c0", "c1", "c2")] == ["holds", "fails", "undecided"]
    assert found["c0"].gain is not None
    assert found["c0"].gain.mean == pytest.approx(2)


def test_p_values_are_corrected_for_looks_and_for_all_claims() -> None:
    gains = [2, 2.3, 1.8, 9, -9]
    found = decide(rule_of(4), {"c0": seeds(*gains)})["c0"]
    t = np.mean(gains[:3]) / (np.std(gains[:3], ddof=1) / 3**0.5)
    assert found.p == pytest.approx(4 * 2 * (1 - t / (t**2 + 2) ** 0.5))  # Student's t with 2 degrees of freedom


def test_seeds_between_two_looks_decide_nothing() -> None:
    noisy = [1, -1, 0.2]
    more = decide(rule_of(1), {"c0": seeds(*noisy, 500)})["c0"]
    assert (more.word, more.p, more.seeds) == ("undecided", decide(rule_of(1), {"c0": seeds(*noisy)})["c0"].p, 4)


def test_a_seed_that_is_missing_is_waited_for() -> None:
    found = decide(rule_of(1), {"c0": {0: 2.0, 1: 2.1, 3: 1.9, 4: 2.0}})["c0"]
    assert (found.seeds, found.word) == (2, "undecided")


def without_name(scenario: Scenario) -> str:
    return repr(scenario.model_dump(exclude={"name"}))


def test_seeds_before_the_first_that_counts_decide_nothing(tmp_path: Path) -> None:
    late = rule_of(1, first_seed=1)
    gains = {0: -90.0, 1: 2.0, 2: 2.1, 3: 1.9}
    found = decide(late, {"c0": gains})["c0"]
    assert (found.word, found.seeds) == ("holds", 3)
    assert found == decide(rule_of(1), {"c0": seeds(2.0, 2.1, 1.9)})["c0"]
    study = ClaimStudy(late, RowFolder(tmp_path))
    assert sorted({seed for _, seed in study.missing("c0")}) == [1, 2, 3]
    assert "| 0, from seed 1 |" in table(study)


def test_no_claim_counts_a_seed_that_was_published_before_the_rule() -> None:
    """The tables of 003 TII and 004 T1 were on the page when the rule was written, with seed 0."""
    compared = {label for claim in rule().claims.values() for label in (claim.better, claim.worse)}
    published = [
        without_name(load(scenario_of(setup, SCENARIOS), run["sets"]))
        for paper, its_table in (("003", "TII"), ("004", "T1"))
        for setup in trials(published_figures(paper, its_table))
        for row in json.loads((ROOT / f"docs/reproduction/{paper}-{its_table}.json").read_text("utf-8"))["rows"]
        for run in row["runs"]
        if row["cell"] == setup.label and (paper == "004" or setup.label in compared)
    ]
    for name, claim in rule().claims.items():
        runs = [without_name(load(each.file, each.cell(0).sets)) for each in cells_of(claim).values()]
        assert claim.first_seed == int(any(run in published for run in runs)), name


def test_a_gain_of_less_than_half_of_what_is_printed_fails_in_the_papers_own_setting_alone() -> None:
    gains = {"c0": seeds(0.02, -0.02, 0.01, -0.01, 0.015)}
    assert decide(rule_of(1, instead=False), gains)["c0"].why == "the gain is less than half of what is printed"
    assert decide(rule_of(1), gains)["c0"].word == "undecided"
    for claim in rule().claims.values():
        assert not claim.overrides or claim.instead is not None
    small_but_there = {"c0": seeds(0.2, 0.21, 0.19, 0.2, 0.2)}
    assert decide(rule_of(1, instead=False), small_but_there)["c0"].word == "holds"


def test_where_nothing_differs_claims_seldom_hold_or_fail() -> None:
    """Of 400 families of four claims, each looked at twice, at most 5 % may decide any: 33 is beyond 1 in 1,000."""
    rng, wrong = np.random.default_rng(1), 0
    for _ in range(400):
        gains = {f"c{n}": seeds(*rng.standard_normal(5)) for n in range(4)}
        wrong += any(each.word != "undecided" for each in decide(rule_of_four, gains).values())
    assert wrong <= 33


rule_of_four = rule_of(4)


def test_figures_of_a_row_are_those_of_its_course() -> None:
    row = a_row()
    known = {"last": 70, "best": 90, "mean_last_5": 74, "gap": 25, "rounds_to_50": 2, "rounds_to_95": 7}
    assert {name: row.figure(name) for name in known} == pytest.approx(known)
    assert a_row(train_accuracy=None).figure("gap") is None
    assert a_row(course=()).figure("best") is None


def test_a_row_is_read_back_as_it_was_and_counts_while_its_proof_stands(tmp_path: Path) -> None:
    folder, row = RowFolder(tmp_path), a_row()
    folder.add(row)
    assert folder.counted() == {row.name: row}
    proof = Proof(
        file="f", method="m", sets=(), arithmetic="here", event_log_hash="log", code="1", commit="", cpu_s=4.0
    )
    folder.prove(proof)
    assert folder.counted() == {row.name: row}
    folder.prove(replace(proof, code="2"))
    assert folder.counted() == {row.name: row}
    folder.prove(replace(proof, code="3", event_log_hash="another"))
    assert folder.counted() == {}
    assert folder.rows() == {row.name: row}


def test_the_budget_counts_runs_that_were_replaced_by_later_ones(tmp_path: Path) -> None:
    folder = RowFolder(tmp_path)
    study = ClaimStudy(rule_of(1), folder)
    a_proof = Proof(file="f", method="m", sets=(), arithmetic="a", event_log_hash="1", code="x", commit="", cpu_s=5.0)
    for log, cpu_s in (("e", 60.0), ("e", 60.0), ("e", 70.0), ("new", 80.0)):  # the second is the first once more
        folder.add(a_row(event_log_hash=log, cpu_s=cpu_s))
    for log in ("1", "1", "2"):
        folder.prove(replace(a_proof, event_log_hash=log))
    assert study.spent_s() == 60 + 70 + 80 + 5 + 5
    folder.add(a_row(file="another claim's name", event_log_hash="new", cpu_s=80.0))
    assert study.spent_s() == 60 + 70 + 80 + 5 + 5


def test_a_damaged_row_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(InputError, match=r"x\.json is no row of a finished cell"):
        RowFolder(tmp_path).rows()


def test_seeds_are_added_until_a_claim_is_decided_or_the_last_look_is_over(tmp_path: Path) -> None:
    folder = RowFolder(tmp_path)
    study = ClaimStudy(read_rule(SMALL.replace("looks: [2]", "looks: [2, 3]")), folder)
    assert [seed for _, seed in study.missing("momentum")] == [0, 0, 1, 1]
    noisy_rows(folder, study, 2)
    assert [seed for _, seed in study.missing("momentum")] == [2, 2]
    noisy_rows(folder, study, 3)
    assert list(study.missing("momentum")) == []
    assert study.decisions()["momentum"].word == "undecided"


@pytest.mark.parametrize("changes", [{"partition": "other"}, {"arithmetic": "elsewhere"}, {"verdict": "fail"}])
def test_runs_that_cannot_be_compared_make_no_pair(tmp_path: Path, changes: dict[str, object]) -> None:
    folder = RowFolder(tmp_path)
    study = ClaimStudy(read_rule(SMALL), folder)
    noisy_rows(folder, study, 2)
    assert len(study.gains()["momentum"]) == 2
    noisy_rows(folder, study, 2, **changes)
    assert study.gains()["momentum"] == {}


def test_a_pair_that_rounds_differently_is_run_again_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdfl.study.claims.work.arithmetic", lambda: "here")
    study = ClaimStudy(read_rule(SMALL), RowFolder(tmp_path))
    noisy_rows(study.rows, study, 2, arithmetic="elsewhere")
    better = study.cells["momentum"]["better"]
    assert list(study.missing("momentum")) == [(better, 0), (better, 1)]
    noisy_rows(study.rows, study, 2, arithmetic="here")
    assert list(study.missing("momentum")) == []
    for row in study.rows.rows().values():
        study.rows.add(replace(row, arithmetic="elsewhere"))
    assert list(study.missing("momentum")) == []
    worse = study.cells["momentum"]["worse"]
    (tmp_path / f"{row_name(worse.file.stem, worse.cell(1).sets)}.json").unlink()
    assert list(study.missing("momentum")) == [(better, 1), (worse, 1)]


def test_a_row_counts_while_its_scenario_is_the_same(stand_in: Path) -> None:
    files = {each.file for each in ClaimStudy(read_rule(SMALL), RowFolder(stand_in)).cells["momentum"].values()}
    scenarios = stand_in / "scenarios"
    scenarios.mkdir()
    for file in files:
        (scenarios / file.name).write_text(file.read_text())

    def study() -> ClaimStudy:
        return ClaimStudy(read_rule(SMALL), RowFolder(stand_in / "rows"), scenarios)

    for wanted in study().cells["momentum"].values():
        row = a_row(file=wanted.file.stem, method=wanted.method, sets=wanted.cell(0).sets)
        study().rows.add(replace(row, scenario=study().scenario_hash(wanted)))
    assert len(study().counted()) == 2
    for file in scenarios.iterdir():
        file.write_text("# a comment\n" + file.read_text())
    assert len(study().counted()) == 2
    for file in scenarios.iterdir():
        file.write_text(re.sub(r"lr: *[0-9.]+", "lr: 0.7", file.read_text()))
    assert study().counted() == {}
    for row in study().rows.rows().values():
        study().rows.add(replace(row, scenario=""))
    assert len(study().counted()) == 2


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_work_proves_each_method_runs_its_cells_and_redoes_what_no_longer_holds(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netdfl.study.claims.work.run_all", partial(run_all, make_runner=InProcess))
    said: list[str] = []
    folder = RowFolder(stand_in / "rows")

    def work() -> ClaimStudy:
        said.clear()
        study = ClaimStudy(read_rule(SMALL), folder)
        BackgroundWork(study, stand_in / "out", 2, None, said.append, StudyProgress()).work()
        return study

    study = work()
    (_, plan) = plans_of(stand_in / "out")[0]
    assert next(StudyState.of(plan).lines()) == "the cells under way: 4 of 4 runs finished"
    proofs = folder.proofs()
    assert {proof.method for proof in proofs.values()} == {"dfedavg", "dfedavgm"}
    assert sorted((row.method, row.seed) for row in folder.rows().values()) == [
        (method, seed) for method in ("dfedavg", "dfedavgm") for seed in range(2)
    ]
    for row in folder.rows().values():
        assert (row.rounds, len(row.course), row.verdict) == (2, 2, "done")
        assert row.proof == proofs[f"004_t1_mnist-{row.method}-{row.arithmetic[:8]}"].event_log_hash
        assert row.commit == source_commit()
        assert len(row.scenario) == 64
        assert row.cpu_s > 0
    decision = study.decisions()["momentum"]
    gains = [
        a.figure("mean_last_5") - b.figure("mean_last_5")  # type: ignore[operator]
        for seed in range(2)
        for a in folder.rows().values()
        for b in folder.rows().values()
        if (a.seed, b.seed, a.method, b.method) == (seed, seed, "dfedavgm", "dfedavg")
    ]
    assert decision.gain is not None
    assert decision.gain.mean == pytest.approx(sum(gains) / 2)

    before = dict(folder.rows())
    work()
    assert not any("CPU" in line and "rows" in line for line in said[:-1])

    avg = next(proof for proof in proofs.values() if proof.method == "dfedavg")
    folder.prove(replace(avg, event_log_hash="f" * 64))
    assert {row.method for row in folder.counted().values()} == {"dfedavgm"}
    monkeypatch.setattr(rows_of_cells, "computing_code", lambda: "changed")
    monkeypatch.setattr("netdfl.study.claims.work.computing_code", lambda: "changed")
    work()
    assert [line.partition(":")[0] for line in said if "proved by" in line] == ["dfedavgm"]
    assert [line.partition(":")[0] for line in said if "no longer hold" in line] == ["dfedavg"]
    assert folder.counted() == folder.rows() == before
    assert {proof.code for proof in folder.proofs().values()} == {"changed"}


def test_nothing_begins_that_has_no_time_or_no_budget_left(stand_in: Path) -> None:
    folder = RowFolder(stand_in / "rows")
    study = ClaimStudy(read_rule(SMALL), folder)
    BackgroundWork(study, stand_in / "out", 1, 0.0, lambda line: None, StudyProgress()).work()
    assert folder.proofs() == {}
    poor = ClaimStudy(read_rule(SMALL.replace("budget: 1h", "budget: 1ms")), folder)
    BackgroundWork(poor, stand_in / "out", 1, None, lambda line: None, StudyProgress()).work()
    assert len(folder.proofs()) == 2
    assert folder.rows() == {}


@pytest.mark.soak  # the work that proves each method goes the same way
def test_every_method_shows_its_cost_before_any_claim_takes_the_time(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netdfl.study.claims.work.run_all", partial(run_all, make_runner=InProcess))
    momentum = SMALL[SMALL.index("  momentum:") :]
    other = momentum.replace("momentum:", "flatness:").replace("DFedAvgM", "DFedSAM")
    study = ClaimStudy(read_rule(SMALL + other), RowFolder(stand_in / "rows"))
    assert "more for" not in table(study)
    assert table(study).count("0 min; cost not known yet |") == 2
    said: list[str] = []

    def say(line: str) -> None:
        said.append(table(study) if "proved by" in line else line)

    BackgroundWork(study, stand_in / "out", 1, None, say, StudyProgress()).work()
    assert [line.count("min more for 2 seeds") for line in said[:4]] == [0, 1, 2, 0]


LIMITED = """
import sys
from pathlib import Path
from netdfl.study import task
from netdfl.study.runners.base import CellOrder
task.MOST_CPU_S = 1
scenario, path = map(Path, sys.argv[1:])
task.run_cell(CellOrder(scenario, ("rounds=100000",), path, "simulated"), 1, "background")
"""


def test_a_cell_in_the_background_ends_at_its_limit_of_cpu_time(tmp_path: Path) -> None:
    scenario = tmp_path / "long.yaml"
    scenario.write_text(
        "{schema: netdfl/1, name: long, nodes: 4, rounds: 1, world: simulated, algorithm: dpsgd, topology: ring, "
        "task: {kind: consensus, dim: 2}}"
    )
    words = [sys.executable, "-c", LIMITED, str(scenario), str(tmp_path / "run")]
    done = subprocess.run(words, check=False, cwd=ROOT, timeout=600)
    assert done.returncode == -signal.SIGXCPU
    assert not (tmp_path / "run" / "result.json").exists()


HOLDING = """
import sys, time
from pathlib import Path
from netdfl.study.background import in_background
with in_background(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_one_works_in_the_background_and_can_be_stopped(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert not stop_background(lock)
    with subprocess.Popen([sys.executable, "-c", HOLDING, str(lock)], stdout=subprocess.PIPE, cwd=ROOT) as worker:
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"held\n"
            with pytest.raises(InputError, match="goes on already"), in_background(lock):
                pass
            assert stop_background(lock)
            assert worker.wait(10) == -signal.SIGTERM
            assert not stop_background(lock)
        finally:
            worker.kill()


def test_a_lock_that_nobody_holds_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "lock"
    lock.write_text(f"{os.getpid()}\n")
    monkeypatch.setattr(background.os, "kill", lambda *a: pytest.fail("killed a stranger"))
    assert not stop_background(lock)
    lock.unlink()
    lock.symlink_to(tmp_path / "elsewhere")
    assert not stop_background(lock)


def test_rows_are_json_that_others_can_read(tmp_path: Path) -> None:
    path = RowFolder(tmp_path).add(a_row())
    assert json.loads(path.read_text())["schema"] == "netdfl/row/1"
