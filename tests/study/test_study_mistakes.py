"""Mistakes in a study's file are reported like those of a scenario: place, key, what is expected, remedy."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from netdfl.cli.commands import make_app
from netdfl.core.errors import InputError
from netdfl.study.checking import check_study
from netdfl.study.sweep import sweep
from tests.study.few_runs import FEW

STUDY = f"""\
{FEW}      topology: ring
    cases:
      plain: {{}}
      pushed:
        algorithm.name: sgp
        topology.kind: directed_ring
    vary:
      links.default.loss: [0, 10%]
      wait:
        short: {{wait.deadline: 10ms}}
        long: {{wait.deadline: 1s}}
    seeds: 2
    figures:
      - {{y: error, x: links.default.loss}}
"""
MISTAKES = {
    "a key of the study": (
        "name: mine",
        "nam: mine",
        "2:1: unknown key 'nam', did you mean 'name'? `netdfl list study` has all keys",
    ),
    "a key of a grid": ("seeds: 2", "seed: 2", "24:5: unknown key 'seed', in sweeps.few, did you mean 'seeds'"),
    "a key of a figure": ("{y: error", "{yy: 1, y: error", "26:10: unknown key 'yy', in sweeps.few.figures.0"),
    "a wrong type": ("seeds: 2", "seeds: two", "24:12: sweeps.few.seeds is 'two', expected a whole number"),
    "too few": ("seeds: 2", "seeds: 0", "24:12: sweeps.few.seeds is 0, expected at least 1"),
    "no list": ("[0, 10%]", "10%", "20:27: sweeps.few.vary.links.default.loss is '10%', expected a list"),
    "another schema": ("study/1", "study/2", "1:9: schema is 'netdfl/study/2', expected 'netdfl/study/1'"),
    "no schema": ("schema: netdfl/study/1\n", "", "missing key 'schema', add `schema: netdfl/study/1`"),
    "no YAML": ("cases:", "cases: [", "not valid YAML"),
    "a method": ("dpsgd", "dpsdg", "12:18: unknown algorithm 'dpsdg', did you mean 'dpsgd'?"),
    "a key of the scenario": ("rounds: 2", "rouds: 2", "9:7: unknown key 'rouds', did you mean 'rounds'?"),
    "a value of the scenario": ("nodes: 3", "nodes: three", "8:14: nodes is 'three', expected a whole number"),
    "a method of a case": ("name: sgp", "name: sgb", "17:9: unknown algorithm 'sgb', did you mean"),
    "a key of a case": ("topology.kind", "topolgy.kind", "18:9: unknown key 'topolgy', did you mean 'topology'?"),
    "a varied value": ("10%]", "110%]", "20:31: "),
    "a key of a named value": ("{wait.deadline: 1s}", "{wait.deadlin: 1s}", "23:16: unknown key 'deadlin'"),
    "a varied seed": ("links.default.loss: [0, 10%]", "seed: [1, 2]", "20:13: the seeds are counted, from the"),
    "a seed of a case": ("algorithm.name: sgp", "seed: 7", "17:9: the seeds are counted, from the scenario's `seed`"),
    "a figure": ("y: error", "y: eror", "26:13: sweeps.few.figures.0.y: there is no metric 'eror'"),
}


SAMPLED = ("a key of a grid", "a wrong type", "no YAML", "a method", "a key of a case", "a varied value", "a figure")
"""One of each place and of each form."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SAMPLED else [pytest.mark.soak]) for name in MISTAKES]
)
def test_a_mistake_has_its_place_in_the_study_and_a_remedy(name: str, tmp_path: Path) -> None:
    written, instead, told = MISTAKES[name]
    assert STUDY.count(written) == 1
    file = tmp_path / "mine.yaml"
    file.write_text(STUDY.replace(written, instead))
    with pytest.raises(InputError) as refused:
        sweep(file, out=tmp_path / "out", console=Console(file=io.StringIO()))
    assert str(file) in str(refused.value)
    assert told in str(refused.value)
    assert "--set" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"], "what is refused leaves nothing behind"
    assert not (tmp_path / "out" / "few").exists()
    validated = CliRunner().invoke(make_app(), ["validate", str(file)]).exception
    assert isinstance(validated, InputError)
    assert told in str(validated)


def test_validate_checks_every_combination_of_a_study_without_a_run(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(STUDY)
    done = CliRunner().invoke(make_app(), ["validate", str(file), "--set", "rounds=3"])
    assert done.exit_code == 0, done.exception
    size = "few: 2 cases x 2 values of links.default.loss x 2 values of wait x 2 seeds: 16 runs"
    assert f"{file}: {size}\n" in done.output
    assert "the study is valid" in done.output
    assert [each.name for each in tmp_path.iterdir()] == ["mine.yaml"]


def test_validate_names_combinations_that_do_not_go_together_and_all_mistakes_at_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    conflict = STUDY.replace("wait.deadline: 1s", "wait.deadline: 1s, topology.kind: ring, algorithm.rho: 0.1")
    conflict = conflict.replace("plain: {}", "plain: {algorithm.name: dfedsam, algorithm.lr: 0.1}")
    file.write_text(conflict)
    done = CliRunner().invoke(make_app(), ["validate", str(file)])
    assert done.exit_code == 0, done.exception
    assert "note: few: pushed, links.default.loss=0, wait=long can't be run: " in done.output
    assert "plain, " not in done.output
    file.write_text(conflict.replace("y: error", "y: eror").replace("dim: 2", "dim: two").replace("sgp", "sgb"))
    told = str(CliRunner().invoke(make_app(), ["validate", str(file)]).exception)
    assert all(f"{file}:{place}: " in told for place in ("11:36", "17:9", "26:13"))


@pytest.mark.parametrize("command", ["run", "explain"])
def test_what_takes_one_scenario_says_what_a_study_is_for(command: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(STUDY)
    refused = CliRunner().invoke(make_app(), [command, str(file)]).exception
    assert isinstance(refused, InputError)
    assert "a study of many runs" in str(refused)
    assert f"`netdfl sweep {file}` runs it" in str(refused)


def test_modules_beside_a_study_are_found_wherever_its_runs_lie(tmp_path: Path) -> None:
    (tmp_path / "beside_a_study.py").write_text(
        "from netdfl.topology.base import Topology\nfrom netdfl.topology.catalog import TOPOLOGIES\n"
        "def mine(num_nodes, streams, /) -> Topology:\n    return TOPOLOGIES['ring'](num_nodes, streams)\n"
    )
    file = tmp_path / "mine.yaml"
    file.write_text(STUDY.replace("topology: ring", 'topology: "beside_a_study:mine"'))
    done = CliRunner().invoke(make_app(), ["validate", str(file)])
    assert done.exit_code == 0, done.exception


DATA = """schema: netdfl/study/1
name: mine
sweeps:
  house:
    scenario:
      {schema: netdfl/1, name: house, nodes: 2, rounds: 1, world: simulated, algorithm: dfedavg, topology: full,
       task: {dataset: {name: table, file: house.csv, target: y}, model: mlp}}
    vary: {algorithm.lr: [0.1, 0.01]}
    seeds: 1
"""


@pytest.mark.usefixtures("undrawn")
def test_a_file_of_data_is_found_beside_the_study(tmp_path: Path) -> None:
    """The scenarios of a study lie among its results, and what they name beside the study."""
    (tmp_path / "study.yaml").write_text(DATA)
    with pytest.raises(InputError, match=f"7:44: task.dataset.file: file 'house.csv' not found in {tmp_path}; rel"):
        check_study(tmp_path / "study.yaml")
    rows = "".join(f"{k % 7},{(3 * k) % 5},{k % 2}\n" for k in range(40))
    (tmp_path / "house.csv").write_text(f"a,b,y\n{rows}")
    assert sweep(tmp_path / "study.yaml", out=tmp_path / "out", console=Console(file=io.StringIO())) == 0
