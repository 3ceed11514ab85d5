"""Where a user's own part comes from: the folder of the scenario first, each folder with modules of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from netdfl.core.errors import ScenarioError
from netdfl.host.plan import RunPlan
from netdfl.scenario.load import load
from netdfl.scenario.loading.resolved import to_yaml
from netdfl.scenario.model.schema import Scenario

SCENARIO = """
schema: netdfl/1
name: own
nodes: 4
rounds: 2
task: {kind: consensus, dim: 3}
algorithm: dpsgd
topology: {kind: "MODULE:mine"}
"""
PART = """
import helpers
from netdfl.topology.base import Topology
from netdfl.topology.catalog import TOPOLOGIES
from package import inner

def mine(num_nodes, streams, /) -> Topology:
    import late
    assert late.WHO == helpers.WHO == inner.WHO == WHO, (late.WHO, helpers.WHO, inner.WHO)
    made = TOPOLOGIES["ring"](num_nodes, streams)
    made.who = WHO
    return made

WHO = "FOLDER"
"""


def write(folder: Path, module: str = "mymod") -> Path:
    (folder / "package").mkdir(parents=True)
    (folder / f"{module}.py").write_text(PART.replace("FOLDER", folder.name))
    for name in ("helpers", "late", "package/inner", "package/__init__"):
        (folder / f"{name}.py").write_text(f"WHO = {folder.name!r}\n")
    (folder / "s.yaml").write_text(SCENARIO.replace("MODULE", module))
    return folder / "s.yaml"


def who(scenario: Scenario) -> str:
    from netdfl.scenario.build import build_topology

    return str(build_topology(scenario).who)  # type: ignore[attr-defined]


def test_two_scenarios_have_each_its_own_module_and_its_helpers(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a"), write(tmp_path / "b")
    assert [who(load(file)) for file in (first, second, first)] == ["a", "b", "a"]


def test_the_folder_of_the_scenario_comes_before_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = write(tmp_path / "beside")
    write(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(str(tmp_path / "here"))
    assert who(load(beside)) == "beside"


def test_the_working_directory_is_sought_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = write(tmp_path / "beside")
    write(tmp_path / "here")
    for file in (*(tmp_path / "beside").glob("*.py"),):
        file.unlink()
    monkeypatch.chdir(tmp_path / "here")
    assert who(load(beside)) == "here"


def test_a_module_called_as_one_of_pythons_own_is_found_and_python_keeps_its_own(tmp_path: Path) -> None:
    import token

    assert who(load(write(tmp_path / "a", "token"))) == "a"
    assert sys.modules["token"] is token
    assert token.NAME == 1


def test_the_module_of_an_installed_package_is_the_one_that_everybody_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "a")
    monkeypatch.syspath_prepend(str(tmp_path / "a"))
    scenario = load(file)
    assert sys.modules["mymod"].mine is type(scenario.topology).function.__wrapped__  # type: ignore[union-attr]
    for name in ("mymod", "helpers", "late", "package", "package.inner"):
        monkeypatch.delitem(sys.modules, name)


def test_a_process_of_nodes_finds_it_again(tmp_path: Path) -> None:
    file = write(tmp_path / "a")
    run = tmp_path / "run"
    run.mkdir()
    (run / "scenario.yaml").write_text(to_yaml(load(file)))
    where = {"directory": str(run), "scenario_directory": str(file.parent)}
    blueprint = RunPlan(**where, control="", secret="", run_id="", scenario_hash="").blueprint()
    assert blueprint.network.topology.who == "a"  # type: ignore[attr-defined]


def test_a_run_directory_knows_where_it_came_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, run = write(tmp_path / "a"), tmp_path / "run"
    write(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    run.mkdir()
    (run / "scenario.yaml").write_text(to_yaml(load(file)))
    (run / "origin.json").write_text(json.dumps({"directory": str(file.parent)}))
    assert who(load(run / "scenario.yaml")) == "a"


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("x = 1\nraise KeyError('gone')\n", "KeyError: 'gone'", 2),
        ("x = (\n", "SyntaxError", 1),
        ("import sys\n\nsys.exit(3)\n", "SystemExit: 3", 3),
    ],
)
def test_a_module_that_breaks_is_named_with_its_line(tmp_path: Path, text: str, said: str, line: int) -> None:
    file = write(tmp_path / "a")
    (file.parent / "mymod.py").write_text(text)
    with pytest.raises(ScenarioError) as caught:
        load(file)
    (problem,) = caught.value.problems
    assert said in problem.what
    assert f"{file.parent / 'mymod.py'}:{line}" in problem.what
    assert (problem.line, problem.column) == (8, 18)


def test_a_module_that_breaks_is_run_once_a_load_and_anew_by_the_next(tmp_path: Path) -> None:
    file, runs = write(tmp_path / "a"), tmp_path / "runs"
    (file.parent / "mymod.py").write_text(
        f"with open({str(runs)!r}, 'a') as f: f.write('.')\nraise RuntimeError('no data')\n"
    )
    for times in (1, 2):
        with pytest.raises(ScenarioError, match="no data"):
            load(file)
        assert runs.read_text() == "." * times


def test_names_are_shown_as_their_author_knows_them(tmp_path: Path) -> None:
    file = write(tmp_path / "a")
    (file.parent / "mymod.py").write_text("def other(): ...\n")
    with pytest.raises(ScenarioError, match="'mymod:mine': module 'mymod' has no attribute 'mine', "):
        load(file)
