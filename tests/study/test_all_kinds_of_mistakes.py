"""All mistakes of a study are reported at once, whatever kind they are of, each once and at its place."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from netdfl.cli.commands import make_app
from netdfl.core.errors import InputError
from netdfl.study.plan import load_study, read_study
from netdfl.study.sweep import sweep
from tests.study.few_runs import FEW

STUDY = f"""\
{FEW}      topology: ring
    cases:
      plain: {{algorithm: {{name: dpsgd, lr: 0.1}}}}
      sharp: {{algorithm: {{name: dfedsam, lr: 0.1, rho: 0.05}}}}
    vary:
      links.default.loss: [0, 0.2]
    seeds: 2
    figures:
      - {{y: error, x: round}}
      - {{y: error, x: links.default.loss}}
"""
FORM, FIGURE, SHARED = ("seeds: 2", "seed: 2"), ("x: round", "x: varied"), ("nodes: 3", "nodes: ten")
CASE, VARIED, KEY = ("dfedsam", "dfedsma"), ("vary:", "varry:"), ("loss: [", "los: [")
TOLD = {
    FORM: "19:5: unknown key 'seed', in sweeps.few, did you mean 'seeds'?",
    FIGURE: "21:23: sweeps.few.figures.0.x: 'varied' is not varied here",
    SHARED: "8:14: nodes is 'ten', expected a whole number",
    CASE: "16:15: unknown algorithm 'dfedsma', did you mean 'dfedsam'?",
    VARIED: "17:5: unknown key 'varry', in sweeps.few, did you mean 'vary'?",
    KEY: "18:7: unknown key 'los', in links.default, did you mean 'loss'?",
}


def written(folder: Path, *mistakes: tuple[str, str], study: str = STUDY) -> Path:
    """Write the study with these mistakes."""
    for right, wrong in mistakes:
        assert right in study
        study = study.replace(right, wrong, 1)
    file = folder / "mine.yaml"
    file.write_text(study)
    return file


def lines(file: Path) -> list[str]:
    """What `netdfl validate` says of a study, and `netdfl sweep` below a heading."""
    validated = str(CliRunner().invoke(make_app(), ["validate", str(file)]).exception)
    with pytest.raises(InputError) as refused:
        sweep(file, out=file.parent / "out", console=Console(file=io.StringIO()))
    heading, *told = str(refused.value).splitlines()
    assert heading == "nothing was run, because of these mistakes:"
    assert "\n".join(told) == validated
    return told


@pytest.mark.parametrize(
    "mistakes",
    [
        (FIGURE, SHARED, CASE),
        pytest.param((FORM, FIGURE), marks=pytest.mark.soak),
        pytest.param((FORM, SHARED, CASE), marks=pytest.mark.soak),
        pytest.param((VARIED, FORM, CASE, FIGURE), marks=pytest.mark.soak),
        pytest.param((VARIED, KEY, CASE), marks=pytest.mark.soak),
        (FORM, FIGURE, SHARED, CASE, VARIED, KEY),
    ],
)
def test_no_kind_of_mistake_hides_another_and_each_is_told_once(
    mistakes: tuple[tuple[str, str], ...], tmp_path: Path
) -> None:
    file = written(tmp_path, *mistakes)
    told = lines(file)
    expected = sorted((TOLD[each] for each in mistakes), key=lambda text: [int(n) for n in text.split(":")[:2]])
    assert [line.startswith(f"{file}:{each}") for line, each in zip(told, expected, strict=True)] == [True] * len(told)


def test_a_name_that_is_itself_wrong_is_neither_proposed_nor_held_against_the_figures(tmp_path: Path) -> None:
    told = lines(written(tmp_path, KEY, FIGURE))
    assert not any("links.default.los," in line or "'links.default.los'" in line for line in told)
    assert "use one of bytes_sent, case, round; or NAME@1, like weight@1: that metric of the same node" in told[-1]
    assert len(told) == 2


def test_panels_are_proposed_from_rightly_spelled_names(tmp_path: Path) -> None:
    study = STUDY.replace("x: links.default.loss}", "x: links.default.loss, panels: rounds}")
    *_, told = lines(written(tmp_path, ("loss: [0, 0.2]", "loss: [0]\n      nodse: [3, 4]"), study=study))
    assert told.endswith("nothing else varies as 'rounds': use one of case")


WRONG_FORMS = {
    "no list": ("[0, 0.2]", "0.2"),
    "a key less": ("y: error, ", ""),
    "no number": ("seeds: 2", "seeds: two"),
    "misspelled, and no number": ("seeds: 2", "seed: two"),
    "another schema": ("study/1", "study/2"),
}


@pytest.mark.parametrize("name", WRONG_FORMS)
def test_a_wrong_form_of_one_key_leaves_the_scenario_to_be_checked(name: str, tmp_path: Path) -> None:
    told = lines(written(tmp_path, WRONG_FORMS[name], SHARED))
    assert len(told) == (3 if name.startswith("misspelled") else 2)
    assert sum("nodes is 'ten'" in line for line in told) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        ("plain: {algorithm: {name: dpsgd, lr: 0.1}}", "plain: 3"),
        ("links.default.loss: [0, 0.2]", "links.default.loss: []"),
        ("vary:\n      links.default.loss: [0, 0.2]", "vary: [0]"),
        ("name: mine", "name: [1]"),
    ],
)
def test_what_can_t_be_checked_after_a_wrong_form_gives_no_further_mistakes(
    wrong: tuple[str, str], tmp_path: Path
) -> None:
    places = {
        re.match(rf"{re.escape(str(tmp_path))}/mine.yaml:(\d+):", line) for line in lines(written(tmp_path, wrong))
    }
    assert len({place and place[1] for place in places}) == 1


@pytest.mark.parametrize("text", ["[1, 2]", "schema: netdfl/study/1\nname: x\nsweeps: 3\n", "sweeps: {a: 1}\n"])
def test_a_study_without_a_grid_has_its_mistakes_and_nothing_to_check(text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    plans, problems = read_study(tmp_path / "mine.yaml", tmp_path / "made")
    assert not plans
    assert problems
    with pytest.raises(InputError):
        load_study(tmp_path / "mine.yaml", tmp_path / "made")


def test_varied_options_are_named_as_they_were_typed(tmp_path: Path) -> None:
    file = tmp_path / "few.yaml"
    scenario = STUDY.partition("scenario:\n")[2].partition("    cases:")[0]
    file.write_text("\n".join(line.removeprefix("      ") for line in scenario.splitlines()))
    vary = ["algorithm.name=dpsgd,dfedsma", "rouds=1,2"]
    with pytest.raises(InputError) as refused:
        sweep(file, vary, out=tmp_path / "out", console=Console(file=io.StringIO()))
    told = str(refused.value)
    assert "--set" not in told
    assert "rouds=1, rouds=2 can't be run: --vary rouds: unknown key 'rouds', did you mean 'rounds'?" in told
    assert "--vary algorithm.name: unknown algorithm 'dfedsma', did you mean 'dfedsam'?" in told
