"""`netdfl list` and `--help` on a terminal of 80 columns: whole words, one entry a part, examples that hold."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from rich.console import Console

from netdfl.cli.commands import make_app
from netdfl.core.errors import InputError
from netdfl.scenario.draft import Draft
from netdfl.scenario.explain.keys import ABOUT, GRAPHS, about_lists, lists, row, rows
from netdfl.scenario.explain.terminal_lists import FOLDERS, example, short_source, show_lists, show_part, show_parts
from netdfl.scenario.loading.shipped import shipped_scenarios
from netdfl.scenario.model.study import FigureSpec, StudyFile, Sweep
from tests.scenario.test_lists_and_names import COMMANDS, RUNNER

ALGORITHMS = [str(each["name"]) for each in rows("algorithms")]


def printed(show: Callable[[Console], None], width: int = 80) -> str:
    file = io.StringIO()
    show(Console(file=file, width=width))
    return file.getvalue()


def words(text: str) -> list[str]:
    return re.findall(r"[^\s│╭╮╰╯─]+", text)


@pytest.mark.parametrize(("what", "width"), [*((what, 80) for what in lists()), ("algorithms", 60)])
def test_a_list_fits_its_terminal_and_cuts_no_word(what: str, width: int) -> None:
    found = printed(lambda console: show_parts(what, rows(what), console), width)
    assert all(len(line) <= width for line in found.splitlines())
    assert sorted(words(found)) == sorted(words(printed(lambda console: show_parts(what, rows(what), console), 1000)))
    assert all(str(each["name"]) in found for each in rows(what))


def test_each_list_is_introduced_by_a_sentence() -> None:
    found = about_lists()
    assert [name for about in found.values() for name in about] == lists()
    assert all(sentence.endswith(".") for about in found.values() for sentence in about.values())
    text = printed(lambda console: show_lists(found, console))
    assert all(sentence.split()[0] in text for sentence in ABOUT.values())


def test_each_algorithm_has_one_line_with_its_graph_and_its_paper() -> None:
    text = printed(lambda console: show_parts("algorithms", rows("algorithms"), console))
    head, *lines, last = (line.rstrip() for line in text.splitlines())
    assert head.split() == ["algorithm", "what", "it", "does", "graph", "paper"]
    assert sorted(line.split()[0] for line in lines) == sorted(ALGORITHMS)
    assert "netdfl list algorithms" in last
    for line in lines:
        found = row("algorithms", line.split()[0])
        assert f"  {short_source(str(found['source']))}" in line
        assert f"  {GRAPHS[frozenset(found['needs'])]}  " in line  # type: ignore[call-overload]
        assert f" {found['brief']}  " in line


def test_a_source_is_shortened_to_its_first_author_and_year() -> None:
    assert short_source("Lian et al. 2017; DFedSAM") == "Lian 2017"
    assert short_source("Sun, Li, Wang 2022") == "Sun 2022"
    assert short_source("DFedSAM") == "DFedSAM"


def test_each_folder_of_scenarios_has_a_sentence() -> None:
    assert {name.rpartition("/")[0] for name in shipped_scenarios()} == set(FOLDERS)


def test_the_scenarios_of_one_folder_are_listed_alone_and_the_last_line_says_how() -> None:
    lines = RUNNER.invoke(make_app(), ["list", "scenarios"], env={"COLUMNS": "120"}).output.splitlines()
    assert lines[-1] == "`netdfl list scenarios lecture` lists those of one folder."
    for folder in filter(None, FOLDERS):
        names = [name for name in shipped_scenarios() if name.startswith(f"{folder}/")]
        found = RUNNER.invoke(make_app(), ["list", "scenarios", folder], env={"COLUMNS": "120"}).output.splitlines()
        assert [word for line in found for word in line.split()[:1] if word in names] == names
        assert f"`netdfl explain {names[0]}` shows one of them before it runs." in found
    wrong = RUNNER.invoke(make_app(), ["list", "scenarios", "lectures"])
    assert isinstance(wrong.exception, InputError)
    assert "did you mean 'lecture'?" in str(wrong.exception)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_one_algorithm_is_shown_with_its_equations_parameters_and_an_example_that_is_valid(name: str) -> None:
    found = row("algorithms", name)
    text = printed(lambda console: show_part("algorithms", found, console))
    shown = set(words(text))
    assert set(words(str(found["about"]))) <= shown
    assert set(found["parameters"]) <= shown  # type: ignore[call-overload]
    algorithm, topology = (line.partition(": ")[2] for line in example(found).splitlines())
    Draft(name="mine", algorithm=algorithm, topology=topology).text("mine.yaml")


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_cuts_no_word_at_80_columns_and_gives_flags_no_type(path: tuple[str, ...]) -> None:
    narrow, wide = (
        RUNNER.invoke(make_app(), [*path, "--help"], terminal_width=width, env={"COLUMNS": str(width)}).output
        for width in (80, 400)
    )
    assert sorted(words(narrow)) == sorted(words(wide))
    assert "<bool>" not in narrow


def test_every_key_of_a_study_is_listed_with_its_type_its_default_and_a_sentence() -> None:
    found = {str(each["name"]): each for each in rows("study")}
    assert set(StudyFile.model_fields) - {"schema_"} | {"schema"} == {name for name in found if "." not in name}
    assert {name.removeprefix("sweeps.NAME.") for name in found if name.count(".") == 2} == set(Sweep.model_fields)
    assert {name.rpartition(".")[2] for name in found if ".N." in name} == set(FigureSpec.model_fields)
    assert all(str(each["help"]).endswith(".") for each in found.values())
    seeds = found["sweeps.NAME.seeds"]
    assert (seeds["type"], seeds["default"]) == ("whole number", Sweep.model_fields["seeds"].default)
    text = printed(lambda console: show_part("study", seeds, console))
    assert {"whole", "number", "5"} <= set(words(text))


def test_a_worlds_parameters_have_a_sentence_each_and_compute_has_a_list() -> None:
    found = row("worlds", "simulated")
    told = found["about_parameters"]
    assert isinstance(told, dict)
    assert set(told) == set(found["parameters"])  # type: ignore[call-overload]
    text = printed(lambda console: show_part("worlds", found, console))
    assert all(set(words(sentence)) <= set(words(text)) for sentence in told.values())
    assert "netdfl list compute" in told["compute"]
    kinds = {each["name"]: each for each in rows("compute")}
    assert {"constant", "uniform", "lognormal", "measured", "table"} <= set(kinds)
    assert found["parameters"]["compute"] == "constant"  # type: ignore[index]
    assert "time" in kinds["constant"]["parameters"]  # type: ignore[operator]
    assert "Use the same time for every local round." in printed(
        lambda console: show_parts("compute", rows("compute"), console)
    )
