"""What the command line lists, names and writes: keys of the schema, shipped scenarios, a first scenario, its help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from shlex import split

import pytest
import typer
from typer.testing import CliRunner

from netdfl.cli.commands import make_app
from netdfl.core.errors import ScenarioError
from netdfl.scenario.draft import Draft
from netdfl.scenario.explain.keys import CATALOGUE, lists, rows
from netdfl.scenario.load import load, loads
from netdfl.scenario.loading.shipped import first_sentence, shipped_scenarios
from netdfl.scenario.model.schema import Scenario

APP = typer.main.get_command(make_app())
RUNNER = CliRunner()


def commands(group: object = APP, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every command, with the words that call it."""
    inner = getattr(group, "commands", None)
    if inner is None:
        yield path, group
    for name, command in (inner or {}).items():
        yield from commands(command, (*path, name))


COMMANDS = dict(commands())


def test_every_key_of_the_schema_has_a_list_with_help_for_each_row() -> None:
    keys = {field.alias or name for name, field in Scenario.model_fields.items()}
    assert keys <= set(lists())
    assert {row["name"] for row in rows("keys")} == keys
    assert all(rows(what) for what in lists())
    assert all(row["help"] for what in {*lists()} - {"transport"} for row in rows(what))
    assert [row["name"] for row in rows("wait")][:2] == ["for", "deadline"]
    assert rows("world") == rows("worlds")
    assert {"every", "local", "keep_models"} <= {row["name"] for row in rows("evaluation")}
    assert not {"wait", "evaluation"} & set(CATALOGUE)


def test_each_shipped_scenario_says_what_it_is_and_loads_by_name() -> None:
    names = shipped_scenarios()
    assert {"quickstart", "faults/crash", "studies/loss"} <= set(names)
    assert all(len(first_sentence(file)) > 20 for file in names.values())
    assert load("quickstart").file == names["quickstart"]


def test_a_file_goes_before_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("quickstart").write_text(Draft(name="mine").text("quickstart"))
    assert load("quickstart").name == "mine"


def test_a_name_nearly_right_is_answered_with_the_right_one() -> None:
    with pytest.raises(ScenarioError, match="did you mean 'quickstart', which comes with netdfl"):
        load("quikstart")


def test_a_path_nearly_right_is_answered_with_the_file_beside_it_and_with_a_shipped_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("scenarios").mkdir()
    mine = Path("scenarios/quickstart.yaml")
    mine.write_text(Draft(name="mine").text(str(mine)))
    Path("scenarios/other.yaml").touch()
    both = "did you mean 'scenarios/quickstart.yaml', or 'quickstart', which comes with netdfl?"
    for wrong in ("scenarios/quickstrat.yaml", "scenarios/quickstart.yml", "scenarios/quickstrat"):
        with pytest.raises(ScenarioError, match=re.escape(both)):
            load(wrong)
    with pytest.raises(ScenarioError, match=re.escape("did you mean 'scenarios/other.yaml'?")):
        load("scenarios/othr.yaml")
    with pytest.raises(ScenarioError, match="check the path"):
        load("scenarios/nothing_like_it.yaml")
    with pytest.raises(ScenarioError, match="did you mean 'faults/crash', which comes with netdfl"):
        load("elsewhere/scenarios/faults/crahs.yaml")


@pytest.mark.parametrize("said", [{}, {"loss": "5%", "rate": "10Mbit"}])
def test_a_draft_is_a_valid_scenario_with_a_comment_at_each_choice(said: dict[str, str]) -> None:
    text = Draft(name="mine", **said).text("mine.yaml")
    assert loads(text).name == "mine"
    assert all("#" in line for line in text.splitlines() if line.split(":")[0] in ("nodes", "algorithm", "topology"))


@pytest.mark.parametrize("name", ["n 2 ü", "a: b", "5"])
def test_a_draft_whose_file_gives_no_name_says_where_the_name_comes_from(name: str) -> None:
    """It named a line of a file that is not there."""
    with pytest.raises(ScenarioError, match="it is the file's name without its ending") as caught:
        Draft(name=name).text(f"{name}.yaml")
    assert str(caught.value).startswith((f"{name}.yaml: name is", f"{name}.yaml: not valid"))


@pytest.mark.parametrize("world", ["processes", "simulated", "namespaces"])
def test_a_draft_names_the_other_worlds(world: str) -> None:
    (line,) = (each for each in Draft(name="mine", world=world).text("mine.yaml").splitlines() if "world:" in each)
    written, others = line.split("#")
    assert written.strip() == f"world: {world}"
    assert not re.search(rf"\b{world}\b", others)
    assert len(re.findall(r"\b(processes|simulated|namespaces|containers|slurm|ray)\b", others)) == 5


def test_new_writes_by_options_and_leaves_what_is_there(tmp_path: Path) -> None:
    file = tmp_path / "mine" / "clinics.yaml"
    arguments = ["new", str(file), "--nodes", "5", "--latency", "20ms"]
    assert RUNNER.invoke(make_app(), arguments).exit_code == 0
    before = file.read_text()
    assert (load(file).nodes, load(file).name) == (5, "clinics")
    assert RUNNER.invoke(make_app(), arguments).exit_code != 0
    assert file.read_text() == before


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_commands_help_has_examples_that_parse_and_metavars_of_one_style(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    lines = [line[2:] for line in (command.epilog or "").split("\n\n") if line.startswith("$ ")]
    mine = [line for line in lines if line.startswith(f"netdfl {' '.join(path)}")]
    assert mine, f"`netdfl {' '.join(path)} --help` has no example"
    for line in mine:
        words = list(takewhile(lambda word: word not in ("|", ">"), split(line)))[1 + len(path) :]
        with command.make_context("netdfl", words):
            pass
    for parameter in command.params:
        if not getattr(parameter, "is_flag", False):
            assert parameter.metavar, f"{parameter.name} of {path} has no metavar"
            assert parameter.metavar.upper() == parameter.metavar


def test_the_exit_codes_are_in_the_help_of_run() -> None:
    about = COMMANDS[("run",)].help
    assert all(f"{code} " in about for code in (0, 1, 2, 3, 4, 130))


@pytest.mark.parametrize(
    ("words", "found"),
    [("netdfl run qui", "quickstart"), ("netdfl list wa", "wait"), ("netdfl run x --on sim", "simulated")],
)
def test_a_shell_completes(words: str, found: str) -> None:
    count = str(len(words.split()) - 1)
    environment = {"_NETDFL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": count}
    done = RUNNER.invoke(make_app(), [], env=environment, prog_name="netdfl")
    assert found in done.output.split()
