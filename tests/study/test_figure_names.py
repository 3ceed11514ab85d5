"""The figures of a study: unknown names are refused before anything runs, and what can't be drawn is said."""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

import netdfl
from netdfl.core.errors import InputError
from netdfl.core.fates import NOT_DELIVERED
from netdfl.scenario.explain.keys import rows
from netdfl.scenario.model.study import FigureSpec
from netdfl.study.cells import CellResult
from netdfl.study.figure_names import figure_problems
from netdfl.study.outcome import SHARES
from netdfl.study.plan import Cell, load_study
from netdfl.study.plots import figure_of
from netdfl.study.summary import GridPoint
from netdfl.study.sweep import sweep, write_results
from tests.in_process import InProcess
from tests.study.few_runs import FEW
from tests.study.known_figures import expect_known, of_run, recorded

pytestmark = pytest.mark.usefixtures("unsaved")

SHIPPED = sorted((Path(__file__).resolve().parents[2] / "scenarios" / "studies").glob("*.yaml"))
STUDY = f"""\
{FEW}    vary: {{topology: [ring, full], links.default.loss: [0, 0.1]}}
    seeds: 1
"""


def swept(folder: Path, *figures: str, study: str = STUDY) -> str:
    """Sweep the study with these figures; return what it said."""
    file, said = folder / "named.yaml", io.StringIO()
    file.write_text(study + (f"    figures: [{', '.join(figures)}]\n" if figures else ""))
    assert sweep(file, out=folder / "out", console=Console(file=said, width=400), make_runner=InProcess) == 0
    return said.getvalue()


@pytest.mark.parametrize(
    ("figure", "place", "meant"),
    [
        ("{y: accuracy, x: round}", "y", "test_accuracy"),
        ("{y: consensus_dist, x: topology}", "y", "consensus_distance"),
        ("{y: wieght, x: weight@1}", "y", "weight"),
        ("{y: weight, x: wieght@1}", "x", "weight"),
        ("{y: test_accuracy, x: bytes}", "x", "bytes_sent"),
        ("{y: error, x: links.default.los}", "x", "links.default.loss"),
        ("{y: error, x: links.default.loss, panels: topology.kind}", "panels", "topology"),
    ],
)
def test_an_unknown_name_is_refused_before_anything_runs(tmp_path: Path, figure: str, place: str, meant: str) -> None:
    with pytest.raises(InputError) as refused:
        swept(tmp_path, "{y: error, x: topology}", figure)
    assert f"named.yaml:{len(STUDY.splitlines()) + 1}:" in str(refused.value)
    assert f"sweeps.few.figures.1.{place}: " in str(refused.value)
    assert f"did you mean '{meant}'?" in str(refused.value)
    assert not (tmp_path / "out" / "few").exists()


def test_panels_that_would_be_ignored_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"figures\.0\.panels: a figure by round has none"):
        swept(tmp_path, "{y: error, x: round, panels: topology}")


@pytest.mark.parametrize(("x", "by"), [("round", "round"), ("bytes_sent", "bytes_sent"), ("topology", "varied")])
def test_a_listed_figure_can_be_drawn_by_what_the_list_says_and_by_nothing_else(
    x: str, by: str, tmp_path: Path
) -> None:
    listed = {str(row["name"]): row["by"] for row in rows("figures")}
    file = tmp_path / "listed.yaml"
    file.write_text(STUDY + "    figures:\n" + "".join(f"      - {{y: {name}, x: {x}}}\n" for name in listed))
    (plan,) = load_study(file, tmp_path)
    refused = {name for each in figure_problems(plan) for name in re.findall(r"no metric '(\w+)'", each.what)}
    judged = {"personal_accuracy"}  # the figures of tasks have open names, and this one is like theirs
    assert refused - judged == {name for name, those in listed.items() if by not in those} - judged
    assert {*SHARES, *NOT_DELIVERED} <= set(listed)


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_the_figures_of_shipped_studies_are_known(file: Path, tmp_path: Path) -> None:
    if "schema: netdfl/study/1" in file.read_text():
        for plan in load_study(file, tmp_path):
            assert figure_problems(plan) == []


def test_metrics_of_ones_own_parts_may_have_any_name(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    own = STUDY.replace("algorithm: dpsgd", 'algorithm: "mine:method"')
    file.write_text(own + "    figures: [{y: my_drift, x: round}]\n")
    (plan,) = load_study(file, tmp_path)
    assert figure_problems(plan) == []


def test_a_figure_of_one_number_is_said_and_not_drawn(tmp_path: Path) -> None:
    """Dots from 11.599 to 11.606 MB would look as if they differed."""
    file, said = tmp_path / "constant.yaml", io.StringIO()
    file.write_text(STUDY + "    figures: [{y: bytes_sent, x: topology}, {y: duration_s, x: topology}]\n")
    (plan,) = load_study(file, tmp_path / "written")
    ran = []
    for number, graph in enumerate(("ring", "full")):
        path = tmp_path / graph
        (path / "store").mkdir(parents=True)
        result = {"verdict": "pass", "bytes_sent": 11_599_000 + 7_000 * number, "duration_s": 1.0 + number}
        ran.append(CellResult(Cell("", (("topology", graph),), 0, ()), path, 0, result))
    (tmp_path / "out").mkdir()
    write_results(ran, dataclasses.replace(plan, learning=()), tmp_path / "out", Console(file=said, width=200))
    assert "figure bytes_sent by topology is not drawn: it is 11.6 MB in all rows\n" in said.getvalue()
    assert drawn_in(tmp_path / "out/figures") == {"duration_s"}


CASES = STUDY.replace("[0, 0.1]", "[0, 0.5]").replace(
    "    vary:", "    cases: {one: {}, two: {algorithm.name: dfedavg}}\n    vary:"
)


@pytest.mark.usefixtures("without_curves")
def test_a_figure_by_case_has_dots_for_each_case(tmp_path: Path) -> None:
    swept(tmp_path, "{y: lost, x: case}", "{y: lost, x: topology, panels: case}", study=CASES)
    assert drawn_in(tmp_path / "out/few/figures") == {"lost", "lost_by_topology_case"}


def test_cases_are_on_the_axis_and_the_rest_in_the_legend() -> None:
    points = [
        GridPoint(case, (("topology", graph),), 0, {"error": (0.1, 0.2)}) for case in ("a", "b") for graph in ("c", "d")
    ]
    figure = figure_of(points, FigureSpec(y="error", x="case"))
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b"]
    assert axes.get_xlabel() == "case"
    assert axes.get_legend_handles_labels()[1] == ["c", "d"]


def test_without_cases_there_is_nothing_to_draw_by_case(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'case' is not varied here"):
        swept(tmp_path, "{y: error, x: case}")


ALWAYS = {"error_learning", "consensus_distance_learning"}
"""The curves of every sweep of a problem whose answer is known."""


def drawn_in(folder: Path) -> set[str]:
    """The names of the figures in a folder."""
    return {file.stem for file in folder.iterdir()}


@pytest.mark.usefixtures("without_curves")
def test_a_figure_without_anything_to_show_is_said_and_not_drawn(tmp_path: Path) -> None:
    said = swept(tmp_path, "{y: test_accuracy, x: round}", "{y: error, x: round}", "{y: test_loss, x: bytes_sent}")
    assert "figure test_accuracy by round is not drawn" in said
    assert "figure test_loss by bytes_sent is not drawn" in said
    assert "figure error" not in said
    assert "tables and figures in" in said
    assert drawn_in(tmp_path / "out/few/figures") == {"error_by_round"}


@pytest.mark.usefixtures("without_curves")
def test_figures_of_an_earlier_list_are_removed_and_other_files_stay(tmp_path: Path) -> None:
    lossy, folder = STUDY.replace("[0, 0.1]", "[0, 0.5]"), tmp_path / "out/few/figures"
    figures = "{y: error, x: round}", "{y: lost, x: topology}", "{y: lost, x: links.default.loss}"
    swept(tmp_path, *figures, study=lossy)
    assert drawn_in(folder) == {"error_by_round", "lost", "lost_by_loss"}
    (folder / "my_own.png").touch()
    said = swept(tmp_path, "{y: consensus_distance, x: round}", figures[1], study=lossy)
    assert drawn_in(folder) == {"consensus_distance_by_round", "lost", "my_own"}
    assert "as they are drawn no more: error_by_round, lost_by_loss" in said


def test_curves_are_drawn_whatever_figures_a_study_names(tmp_path: Path) -> None:
    assert "failed; tables and figures in" in swept(tmp_path)
    assert drawn_in(tmp_path / "out/few/figures") == ALWAYS


ANY = {"schema": "netdfl/1", "name": "any", "nodes": 4, "rounds": 3, "world": "simulated", "topology": "ring"}
QUADRATIC = {"task": "quadratic", "links": {"default": {"loss": 0.2}}, "wait": {"deadline": "auto"}}
RUNS: dict[str, tuple[dict[str, object], set[str]]] = {
    "push-sum with acknowledgements": (
        {"algorithm": {"name": "sgp", "lr": 0.1}, "delivery": {"kind": "acknowledged", "attempts": 1}},
        {"limbo", "limbo_weight", "weight", "weight_sum"},
    ),
    "compressed gossip": (
        {"algorithm": {"name": "choco_sgd", "lr": 0.1}, "compression": "sign"},
        {"gamma", "reference_gaps", "reference_lost_w", "reference_resyncs", "reference_resync_bytes"},
    ),
    "late messages": ({"algorithm": {"name": "asyng", "lr": 0.1}}, {"bytes_sent", "error"}),
    "models of a dataset": (
        {
            "task": {"dataset": "digits", "model": "mlp"},
            "algorithm": {"name": "dpsgd", "lr": 0.1},
            "evaluation": {"every": 1, "local": "all"},
        },
        {"test_accuracy", "test_loss", "mean_local_accuracy"},
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_whatever_runs_record_can_be_drawn(name: str, tmp_path: Path) -> None:
    """Each run also records what it was chosen for, so that these lists can't lose it unseen."""
    keys, chosen = RUNS[name]
    path = tmp_path / "run"
    netdfl.run(ANY | QUADRATIC | keys, out=path, page=False)
    names = recorded(netdfl.open_run(path))
    assert chosen <= names
    expect_known(names, tmp_path)
    expect_known(of_run(path), tmp_path, x="seed")
