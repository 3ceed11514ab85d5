"""A sweep runs every cell once, goes on where it was left, names what fails, and leaves tables and figures."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from netdfl.core.errors import InputError
from netdfl.record.judge import WELL
from netdfl.scenario.load import load
from netdfl.scenario.loading.document import parse
from netdfl.study.plan import cells_of, is_study, load_study, parse_vary
from netdfl.study.progress import FILE, StudyPlan, StudyState
from netdfl.study.sweep import sweep
from tests.in_process import InProcess

ROOT = Path(__file__).resolve().parents[2]
BASE = """
schema: netdfl/1
name: swept
nodes: 4
rounds: 3
world: simulated
task: {kind: consensus, dim: 2}
algorithm: dpsgd
topology: ring
wait: {deadline: 10ms}
"""
FLOW = (
    "schema: netdfl/1",
    "name: compared",
    "nodes: 4",
    "rounds: 10",
    "task: {kind: consensus, dim: 2}",
    "algorithm: dpsgd",
    "topology: ring",
    "wait: {deadline: 100ms}",
    "links: {default: {loss: 0, latency: 1ms}}",
)


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "swept.yaml"
    file.write_text(BASE)
    return file


def rows(file: Path) -> list[dict[str, str]]:
    with file.open() as lines:
        return list(csv.DictReader(lines))


@pytest.mark.usefixtures("without_curves", "unsaved")  # test_tables.py looks at what is in the files
def test_a_sweep_resumes_and_names_what_does_not_go_together(
    scenario: Path, tmp_path: Path, draw_nothing: Callable[[], None]
) -> None:
    out, said = tmp_path / "out", io.StringIO()
    console = Console(file=said, width=200)
    vary = ["links.default.loss=0,0.3", "algorithm.name=dpsgd,fedavg", "topology=ring,star"]
    assert sweep(scenario, vary, out=out, seeds=1, jobs=2, console=console, make_runner=InProcess) == 4
    failed = "failed: links.default.loss=0, algorithm.name=dpsgd, topology=star, seed=0: "
    assert failed in said.getvalue()

    cells = rows(out / "swept" / "cells.csv")
    assert len(cells) == 8
    ran = [row for row in cells if not row["wrong"] and row["algorithm.name"] == "dpsgd"]
    assert {(row["links.default.loss"], row["seed"]) for row in ran} == {("0", "0"), ("0.3", "0")}
    assert all(float(row["error"]) < 1e-12 for row in ran if row["links.default.loss"] == "0")
    assert (out / "swept" / "figures" / "error.png").exists()
    table = (out / "swept" / "table.md").read_text()
    assert table.startswith("Before the figures:\n\n- timeouts in 2 of 4 runs, most in loss=0.3")
    assert "\n| links.default.loss | algorithm | topology |" in table

    kept, lost = (out / "swept" / "cells" / row["run"] for row in ran[:2])
    before = (kept / "result.json").stat().st_mtime_ns
    (lost / "result.json").unlink()
    draw_nothing()  # once is enough
    sweep(scenario, vary, out=out, seeds=1, jobs=1, console=console, make_runner=InProcess)
    assert (kept / "result.json").stat().st_mtime_ns == before
    assert json.loads((lost / "result.json").read_text())["verdict"] in WELL
    assert not (kept / "report.html").exists()


@pytest.mark.parametrize(
    ("vary", "wrong"),
    [
        (["links.default.loss=0,0.3", "algorithm.name=dpsgd,no_such_method"], "algorithm.name=no_such_method"),
        (["algorithm.nme=dpsgd,sgp"], "algorithm.nme=dpsgd, algorithm.nme=sgp"),
        (["rounds=3,three"], "rounds=three"),
    ],
)
def test_a_typo_in_one_arm_is_named_before_anything_is_run(
    vary: list[str], wrong: str, scenario: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as told:
        sweep(scenario, vary, out=tmp_path / "out", seeds=2, console=Console(file=io.StringIO()))
    first, *problems = str(told.value).splitlines()
    assert first == "no cell was run, as some never can be:"
    assert problems[0].startswith(f"{wrong} can't be run: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("undrawn")
def test_no_two_columns_have_one_name_where_rounds_vary(scenario: Path, tmp_path: Path) -> None:
    """Whose program reads rows by their names took the rounds that were made for those that were asked for."""
    console = Console(quiet=True)
    assert not sweep(scenario, ["rounds=2,3"], out=tmp_path, seeds=1, console=console, make_runner=InProcess)
    for name in ("cells.csv", "table.csv"):
        head = (tmp_path / "swept" / name).read_text().splitlines()[0].split(",")
        assert len(set(head)) == len(head)
    found = rows(tmp_path / "swept" / "cells.csv")
    assert [(each["rounds"], each["rounds_measured"]) for each in found] == [("2", "2.0"), ("3", "3.0")]


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_failed_in_silence_is_told_with_the_reason_of_its_verdict(tmp_path: Path, scenario: Path) -> None:
    """A part of the user's own that raised was told as `exit code 4`, with the name of an empty log."""
    (tmp_path / "pace.py").write_text(
        "def steady(streams, /):\n"
        "    def ns(node, round):\n"
        "        if streams.seed == 1 and round == 2:\n"
        "            raise ValueError('no pace')\n"
        "        return 1000\n"
        "    return ns\n"
    )
    scenario.write_text(BASE.replace("world: simulated", "world: {kind: simulated, compute: {kind: 'pace:steady'}}"))
    said = io.StringIO()
    console = Console(file=said, width=300)
    assert sweep(scenario, [], out=tmp_path, seeds=2, console=console, make_runner=InProcess) == 1
    told = f"round 2: your own code raised ValueError: no pace ({tmp_path}/pace.py:4)"
    assert told in said.getvalue()
    assert [told in row["wrong"] for row in rows(tmp_path / "swept" / "cells.csv")] == [False, True]
    lines = list(StudyState.of(StudyPlan.read(tmp_path / "swept" / FILE)).lines())
    assert lines[0] == "swept: 1 of 2 runs finished, 1 failed"
    assert told in lines[1]


def test_seeds_are_counted_and_not_varied(scenario: Path, tmp_path: Path) -> None:
    """Each run gets its own seed, so rows `seed=1` and `seed=2` would both be of the seeds 0, 1, ..."""
    with pytest.raises(InputError, match=r"^--vary seed: the seeds are counted, .*: give --seeds N in place of values"):
        sweep(scenario, ["seed=1,2"], out=tmp_path / "out", seeds=2, console=Console(file=io.StringIO()))
    assert not (tmp_path / "out").exists()


def refusal(file: Path, vary: list[str], sets: list[str], out: Path) -> list[str]:
    """The lines of a sweep's refusal."""
    with pytest.raises(InputError) as told:
        sweep(file, vary, sets, out=out, seeds=1, console=Console(file=io.StringIO()))
    assert not list(out.glob("*/cells"))
    return str(told.value).splitlines()


OWN_KEYS = [
    (
        ["algorithm.name=dpsgd,dfedsam"],
        ["algorithm.rho=0.5", "algorithm.lr=0.2"],
        "in place of --vary algorithm.name and --set algorithm.rho=0.5:",
        "{name: dpsgd, lr: 0.2},{name: dfedsam, lr: 0.2, rho: 0.5}",
    ),
    (
        ["algorithm.rho=0.1,0.2", "algorithm.name=dpsgd,dfedsam"],
        ["algorithm.lr=0.2"],
        "in place of --vary algorithm.rho and --vary algorithm.name:",
        "{name: dpsgd, lr: 0.2},{name: dfedsam, lr: 0.2, rho: 0.1},{name: dfedsam, lr: 0.2, rho: 0.2}",
    ),
]


@pytest.mark.parametrize(("vary", "sets", "instead", "forms"), OWN_KEYS)
def test_a_key_that_one_algorithm_lacks_is_told_with_that_one_and_how_to_give_it_to_the_other(
    vary: list[str], sets: list[str], instead: str, forms: str, scenario: Path, tmp_path: Path
) -> None:
    _, lacking, remedy, command = refusal(scenario, vary, sets, tmp_path / "out")
    option = "--set algorithm.rho=0.5" if sets[0].startswith("algorithm.rho") else "--vary algorithm.rho"
    assert lacking.startswith(f"algorithm.name=dpsgd can't be run: {option}: unknown key 'rho'")
    assert remedy == f"of these, dfedsam has 'rho'; give each its own keys, {instead}"
    assert command == f"--vary 'algorithm={forms}'"
    path, values = parse_vary(command.removeprefix("--vary '").removesuffix("'"))
    algorithms = [load(scenario, [f"{path}={value}"]).algorithm for value in values]
    assert [each.kind for each in algorithms] == ["dpsgd"] + ["dfedsam"] * (len(values) - 1)


def test_a_key_that_a_case_lacks_is_told_with_the_cases_that_have_it(tmp_path: Path) -> None:
    cases = {"plain": {"algorithm.name": "dpsgd"}, "sharp": {"algorithm.name": "dfedsam"}}
    grid = {"scenario": parse(BASE, "x").data, "cases": cases, "seeds": 1}
    (tmp_path / "study.json").write_text(json.dumps({"schema": "netdfl/study/1", "name": "x", "sweeps": {"x": grid}}))
    _, lacking, remedy = refusal(tmp_path / "study.json", [], ["algorithm.rho=0.5"], tmp_path / "out")
    assert lacking.startswith("plain can't be run: --set algorithm.rho=0.5: unknown key 'rho'")
    assert remedy == "leave it out of --set, and write it in the study for the cases that have it: sharp"


@pytest.mark.usefixtures("undrawn")
def test_a_key_that_all_varied_algorithms_have_is_taken_where_the_scenario_s_own_lacks_it(
    scenario: Path, tmp_path: Path
) -> None:
    console, out = Console(file=io.StringIO()), tmp_path / "out"
    sets = ["algorithm.rho=0.5", "algorithm.lr=0.1", "seed=7"]
    assert (
        sweep(scenario, ["algorithm.name=dfedsam"], sets, out=out, seeds=1, console=console, make_runner=InProcess) == 0
    )
    assert [row["seed"] for row in rows(out / "swept" / "cells.csv")] == ["7"]


def test_a_key_that_nothing_varied_has_is_told_once(scenario: Path, tmp_path: Path) -> None:
    lines = refusal(scenario, ["rounds=2,3"], ["rouds=3"], tmp_path / "out")
    assert lines == ["--set rouds=3: unknown key 'rouds', did you mean 'rounds'?"]
    sets = ["algorithm.rho=1", "algorithm.lr=0.1"]
    first, *told = refusal(scenario, ["algorithm.name=dfedavg,dfedavgm"], sets, tmp_path / "out")
    assert first == "no cell was run, as some never can be:"
    assert [line.partition(" can't be run: --set algorithm.rho=1: unknown key 'rho'")[0] for line in told] == [
        "algorithm.name=dfedavg",
        "algorithm.name=dfedavgm",
    ]


@pytest.mark.usefixtures("undrawn")
def test_overrides_hold_in_all_cells_below_what_a_cell_overrides(scenario: Path, tmp_path: Path) -> None:
    sets = ["rounds=2", "seed=7", "links.default.loss=0.9", "algorithm.name=sgp", "topology=directed_ring"]
    out, quiet = tmp_path / "out", Console(file=io.StringIO())
    assert (
        sweep(scenario, ["links.default.loss=0,0.1"], sets, out=out, seeds=1, console=quiet, make_runner=InProcess) == 0
    )
    for row in rows(out / "swept" / "cells.csv"):
        kept = load(out / "swept" / "cells" / row["run"] / "scenario.yaml")
        assert (kept.rounds, kept.seed, kept.algorithm.kind) == (2, 7, "sgp")
        assert row["seed"] == "7"
        assert row["links.default.loss"] in ("0", "0.1")


def test_a_study_says_itself_what_varies(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"loss\.yaml: is a study .*--set for both"):
        sweep(ROOT / "scenarios/studies/loss.yaml", ["nodes=4"], out=tmp_path, console=Console(file=io.StringIO()))


@pytest.mark.parametrize(
    "name",
    [
        *("tuning_003", "compression_mnist", "loss_layer"),
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("loss", "deadlock", "push_sum_weights")),
    ],
)
def test_every_cell_of_a_shipped_study_is_a_valid_scenario(name: str, tmp_path: Path) -> None:
    file = ROOT / "scenarios" / "studies" / f"{name}.yaml"
    assert is_study(file)
    for plan in load_study(file, tmp_path):
        for cell in cells_of(plan, 0):
            if cell.seed == 0:
                kinds = {"loss_layer": {"processes", "namespaces", "simulated"}}.get(name, {"simulated"})
                assert load(plan.scenario, cell.sets).world.kind in kinds


@pytest.mark.soak
def test_a_study_compares_worlds_and_layers_by_name(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    names = {
        "messages": "{world: {kind: simulated}}",
        "packets": "{world: {kind: simulated, loss_layer: packet}, wait.deadline: none}",
        "real": "{world: {kind: processes, nodes_per_process: 4}, wait.deadline: 1s, rounds: 4}",
    }
    layers = "".join(f"        {name}: {override}\n" for name, override in names.items())
    study.write_text(
        f"schema: netdfl/study/1\nname: layers\nsweeps:\n  compared:\n    scenario: {{{', '.join(FLOW)}}}\n"
        f"    vary:\n      layer:\n{layers}      links.default.loss: [0, 0.2]\n    seeds: 1\n"
        "    figures:\n      - {y: missing, x: links.default.loss, panels: layer}\n"
    )
    assert sweep(study, out=tmp_path / "out", console=Console(file=io.StringIO())) == 0
    cells = {(row["layer"], row["links.default.loss"]): row for row in rows(tmp_path / "out/compared/cells.csv")}
    assert len(cells) == 6
    for (layer, loss), row in cells.items():
        result = json.loads((tmp_path / "out/compared/cells" / row["run"] / "result.json").read_text())
        assert result["world"] == ("processes" if layer == "real" else "simulated")
        assert result["links"]["layer"] == ("packet" if layer == "packets" else "message")
        assert (float(row["missing"]) > 0) == (layer != "packets" and loss == "0.2")
        assert 0 < float(row["round_s_median"]) <= float(row["round_s_p95"])
    assert (tmp_path / "out/compared/figures/missing.png").stat().st_size > 0
