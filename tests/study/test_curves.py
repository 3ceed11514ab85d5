"""What a sweep draws of a run's rounds: curves over nodes and seeds, where they break off, one metric after another."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console

from netdfl.record.log_axis import label_logs
from netdfl.scenario.model.study import FigureSpec
from netdfl.study.cells import CellResult
from netdfl.study.curves import (
    STROKES,
    MetricCurve,
    by_line,
    curve_of,
    draw_curves,
    draw_points,
    follows,
    looks_of,
    sent,
)
from netdfl.study.learning import draw_learning
from netdfl.study.outcome import figures_of
from netdfl.study.plan import Cell
from netdfl.study.plots import COLORS, figure_of, name_y
from netdfl.study.summary import GridPoint
from netdfl.study.sweep import sweep

STUDY = """
schema: netdfl/study/1
name: curves
sweeps:
  weights:
    scenario:
      schema: netdfl/1
      name: weights
      seed: 1
      nodes: 5
      rounds: 4
      world: simulated
      task: {kind: consensus, dim: 2}
      algorithm: sgp
      topology: {kind: random_push, out_neighbors: 2}
      wait: {deadline: none}
    seeds: 2
    figures:
      - {y: weight, x: round, log: true}
      - {y: error, x: round, log: true}
      - {y: weight, x: weight@1}
      - {y: error, x: bytes_sent, log: true}
"""


def recorded(
    path: Path,
    values: list[list[float | None]],
    *,
    died: int | None = None,
    case: str = "",
    metric: str = "train_loss",
) -> CellResult:
    """A run whose node i had `values[t][i]` as its `metric` in round t; `died` is a round in which node 0 died."""
    (path / "store").mkdir(parents=True)
    rows = [
        {"at_s": 0, "node": node, "round": round, "name": metric, "value": value}
        for round, row in enumerate(values)
        for node, value in enumerate(row)
    ]
    (path / "store" / "metrics-fleet.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    phases = [("died", died)] if died is not None else [("finished", len(values))]
    (path / "fleet.json").write_text(json.dumps({"nodes": [{"phase": p, "round": r} for p, r in phases]}))
    return CellResult(Cell(case, (), 0, ()), path, 0, {"rounds": len(values)})


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Axes]:
    """The axes of every figure that is saved, once for its PNG and PDF."""
    found: list[Axes] = []

    def saved(figure: Figure, path: Path) -> None:
        found.extend(figure.axes if path.suffix == ".png" else ())

    monkeypatch.setattr(Figure, "savefig", saved)
    return found


def test_a_metric_stands_against_the_bytes_of_all_nodes_up_to_its_round(tmp_path: Path) -> None:
    rows = [("bytes_sent", node, round, 10.0 + node) for round in range(4) for node in (0, 1)]
    rows += [("test_accuracy", None, 1, 0.5), ("test_accuracy", None, 3, 0.75)]
    rows += [("test_accuracy", node, 3, 0.1) for node in (0, 1)]  # of their own models
    (tmp_path / "store").mkdir()
    keys = ("name", "node", "round", "value")
    lines = "".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in rows)
    (tmp_path / "store" / "metrics-fleet.jsonl").write_text(lines)
    assert sent(CellResult(Cell("", (), 0, ()), tmp_path, 0, {}), "test_accuracy") == ([42.0, 84.0], [0.5, 0.75])


def test_a_curve_is_the_median_and_the_range_over_nodes_and_seeds(tmp_path: Path) -> None:
    runs = [recorded(tmp_path / "a", [[1, 2], [5, 6]]), recorded(tmp_path / "b", [[3, 9], [7, 8]])]
    assert curve_of(runs, "train_loss") == MetricCurve((1, 2), (2.5, 6.5), (1, 5), (9, 8), whole=True)


@pytest.mark.parametrize(("values", "died"), [([[1, 2], [3, None], [4, 5]], None), ([[1, 2], [3, 3], [4, 5]], 1)])
def test_a_curve_breaks_off_where_a_value_is_infinite_or_a_node_dies(
    tmp_path: Path, values: list[list[float | None]], died: int | None
) -> None:
    curve = curve_of([recorded(tmp_path / "a", values, died=died)], "train_loss")
    assert (curve.rounds, curve.whole) == ((1,), False)


def test_a_metric_is_set_against_that_of_the_same_node_so_many_rounds_before(tmp_path: Path) -> None:
    run = recorded(tmp_path / "a", [[1, 10], [2, None], [3, 30]])
    assert follows([run], "train_loss", "train_loss", 2) == ([1, 10], [3, 30])
    assert follows([run], "train_loss", "train_loss", 1) == ([1, 2], [2, 3])


def test_metrics_of_nodes_are_read_where_each_node_wrote_its_own(tmp_path: Path) -> None:
    run = recorded(tmp_path / "a", [])
    for node in (0, 1):
        rows = [
            {"at_s": 0, "node": node, "round": round, "name": name, "value": value}
            for round in range(2)
            for name, value in (("bytes_sent", 10.0), ("train_loss", 1.0 + node + round))
        ]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (run.path / "store" / f"metrics-{node:03d}.jsonl").write_text(lines)
    error = {"at_s": 0, "node": None, "round": 1, "name": "error", "value": 0.5}
    (run.path / "store" / "metrics-fleet.jsonl").write_text(json.dumps(error) + "\n")
    both = CellResult(run.cell, run.path, 0, {"rounds": 2})
    assert sent(both, "error") == ([40.0], [0.5])
    assert curve_of([both], "train_loss") == MetricCurve((1, 2), (1.5, 2.5), (1, 2), (2, 3), whole=True)
    assert follows([both], "train_loss", "train_loss", 1) == ([1, 2], [2, 3])


def named(axes: Axes) -> dict[str, tuple[object, object]]:
    """How each line of the legend is drawn."""
    lines = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    return {str(line.get_label()): (line.get_color(), line.get_linestyle()) for line in lines}


def test_equal_curves_are_drawn_once_and_keep_the_looks_of_their_names(tmp_path: Path, drawn: list[Axes]) -> None:
    values: dict[str, list[list[float | None]]] = {"a": [[1, 2]], "b": [[1, 2]], "c": [[1, 3]]}
    runs = [recorded(tmp_path / case, rows, case=case) for case, rows in values.items()]
    different = [recorded(tmp_path / f"{case}{case}", [[ord(case)]], case=case) for case in values]
    for some in (runs, runs[:2], runs[:1], different):
        draw_curves(some, FigureSpec(y="train_loss", x="round", log=True), tmp_path / "any.png")
    part, equal, single, apart = map(named, drawn)
    assert (list(part), list(equal), list(single), list(apart)) == (
        ["a\nb", "c"],
        ["all cases"],
        ["a"],
        ["a", "b", "c"],
    )
    assert part["c"] == apart["c"]
    assert len(set(apart.values())) == len({color for color, _ in apart.values()}) == 3
    assert len({stroke for _, stroke in apart.values()}) > 1


def placed(path: Path, case: str, loss: str) -> CellResult:
    """A run of a case at a level of loss, of two nodes and two rounds, unlike those of other cases and levels."""
    run = recorded(path / f"{case}{loss}", [[ord(case), 2], [3, float(loss)]])
    return dataclasses.replace(run, cell=Cell(case, (("links.default.loss", loss),), 0, ()))


def test_colors_are_of_methods_and_dashes_of_what_else_varies(tmp_path: Path) -> None:
    looks = looks_of(by_line([placed(tmp_path, case, loss) for case in "abc" for loss in ("0", "0.2")]))
    colors, strokes = ([looks[name][part] for name in looks] for part in (0, 1))
    assert colors == [color for color in COLORS[:3] for _ in range(2)]
    assert strokes == list(STROKES[:2]) * 3
    many = looks_of(by_line([placed(tmp_path / "many", case, str(n)) for case in "ab" for n in range(5)]))
    assert len(set(many.values())) == len(many) == 10, "more levels than dashes: each line has a look of its own"


def test_bands_are_filled_for_few_lines_and_a_note_says_what_they_are(tmp_path: Path, drawn: list[Axes]) -> None:
    runs = [placed(tmp_path, case, loss) for case in "ab" for loss in ("0", "0.2")]
    for some in (runs[:3], runs):
        draw_curves(some, FigureSpec(y="train_loss", x="round"), tmp_path / "any.png")
    assert [len(axes.collections) for axes in drawn] == [3, 0]
    notes = [axes.get_figure().get_supxlabel() for axes in drawn]  # type: ignore[union-attr]
    assert notes == ["line: the median over nodes and one seed; thin lines: the lowest and the highest"] * 2
    assert [len(axes.lines) for axes in drawn] == [9, 12], "a line and two thin ones"


def fleet_run(path: Path, cell: Cell, errors: list[float]) -> CellResult:
    """A run whose fleet has these errors by round, and sends 10 bytes in each."""
    run = recorded(path, [[error] for error in errors], metric="error")
    file = run.path / "store" / "metrics-fleet.jsonl"
    sent = [{"at_s": 0, "node": 0, "round": n, "name": "bytes_sent", "value": 10.0} for n in range(len(errors))]
    lines = "".join(json.dumps(row) + "\n" for row in sent)
    file.write_text(file.read_text().replace('"node": 0', '"node": null') + lines)
    return dataclasses.replace(run, cell=cell)


def test_the_note_of_learning_curves_is_about_intervals_over_seeds(tmp_path: Path, drawn: list[Axes]) -> None:
    def of_fleet(case: str, seed: int) -> CellResult:
        return fleet_run(tmp_path / f"{case}{seed}", Cell(case, (), seed, ()), [1 + seed, 2 * ord(case) - 190])

    for cases, log in (("a", False), ("abcd", True)):
        draw_learning(
            [of_fleet(f"{case}", seed + 10 * log) for case in cases for seed in (0, 1)], "error", tmp_path, log=log
        )
    notes = [axes.get_figure().legends[0].get_title().get_text() for axes in drawn]  # type: ignore[union-attr]
    assert [" ".join(note.split()) for note in notes] == [
        "line: the mean over 2 seeds; band: its 95 % confidence interval",
        "line: the geometric mean over 2 seeds; no bands, as there are 4 lines",
    ]
    for axes in drawn:
        figure = axes.get_figure()
        assert isinstance(figure, Figure)
        FigureCanvasAgg(figure).draw()
        box = figure.legends[0].get_title().get_window_extent()
        assert 0 < box.x0 < box.x1 < figure.bbox.x1, "the note is cut at the edges of a figure of one panel"
    assert [len(axes.collections) for axes in drawn] == [1, 0]


def test_learning_curves_say_over_what_they_end_with_the_first_run(tmp_path: Path, drawn: list[Axes]) -> None:
    """Of two runs of which one died, the mean over rounds has no more rounds than that one."""
    short, long = (
        fleet_run(tmp_path / str(seed), Cell("", (), seed, ()), errors)
        for seed, errors in enumerate(([3.0, 2.0], [3.0, 2.0, 1.0]))
    )
    draw_learning([short, long], "error", tmp_path)
    (note,) = {axes.get_figure().legends[0].get_title().get_text() for axes in drawn}  # type: ignore[union-attr]
    assert " ".join(note.split()).endswith("; over rounds to where the first of the runs ended")


def test_each_level_has_a_row_of_curves_with_bands_where_all_together_are_too_many(
    tmp_path: Path, drawn: list[Axes]
) -> None:
    def of_fleet(method: str, loss: str, seed: int) -> CellResult:
        cell = Cell("", (("algorithm.name", method), ("links.default.loss", loss)), seed, ())
        return fleet_run(tmp_path / f"{method}{loss}{seed}", cell, [1 + seed, 2 + ord(method)])

    runs = [of_fleet(method, loss, seed) for method in "abc" for loss in ("5%", "20%") for seed in (0, 1)]
    draw_learning(runs, "error", tmp_path)
    (figure,) = {axes.get_figure() for axes in drawn}
    assert isinstance(figure, Figure)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["message loss 5%", "message loss 20%"]
    assert [len(axes.collections) for axes in figure.axes] == [3, 3], "a band for each line"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "c"]
    colors = [[line.get_color() for line in axes.lines] for axes in figure.axes]
    assert colors[0] == colors[1]
    assert "under" not in figure.legends[0].get_title().get_text()


def test_a_legend_says_of_which_key_a_number_is_a_value(tmp_path: Path, drawn: list[Axes]) -> None:
    runs = [
        fleet_run(tmp_path / f"{beta}{lr}", Cell("", (("algorithm.beta", beta), ("algorithm.lr", lr)), 0, ()), [2, 1])
        for beta in ("0.1", "0.9")
        for lr in ("0.01", "0.1")
    ]
    draw_learning(runs, "error", tmp_path)
    (figure,) = {axes.get_figure() for axes in drawn}
    assert isinstance(figure, Figure)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["learning rate 0.01", "learning rate 0.1"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["beta=0.1", "beta=0.9"]


def test_a_curve_under_another_is_named_with_the_level(tmp_path: Path, drawn: list[Axes]) -> None:
    def run(method: str, loss: str, *errors: float) -> CellResult:
        cell = Cell("", (("algorithm.name", method), ("links.default.loss", loss)), 0, ())
        return fleet_run(tmp_path / f"{method}{loss}", cell, list(errors))

    runs = [
        run("a", "0", 9, 1), run("b", "0", 9.05, 1.01), run("c", "0", 9, 5),
        run("a", "1", 9, 1), run("b", "1", 9, 2), run("c", "1", 9, 5),
    ]  # fmt: skip
    draw_learning(runs, "error", tmp_path)
    (figure,) = {axes.get_figure() for axes in drawn}
    assert isinstance(figure, Figure)
    title = figure.legends[0].get_title().get_text()
    assert title.splitlines()[1:] == ["a lies under b at message loss 0"]


def test_an_axis_of_numbers_has_the_varied_values_with_as_few_digits_as_they_need() -> None:
    def ticks(*losses: str) -> list[str]:
        points = [GridPoint("a", (("links.default.loss", x),), 0, {"error": (1.0, 2.0)}) for x in losses]
        figure = figure_of(points, FigureSpec(y="error", x="links.default.loss"))
        FigureCanvasAgg(figure).draw()
        assert "bar: its 95 % confidence interval" in figure.legends[0].get_title().get_text()
        return [label.get_text() for label in figure.axes[0].get_xticklabels()]

    assert ticks("0", "0.1", "0.2") == ["0", "0.1", "0.2"]
    assert ticks("0%", "20%") == ["0%", "20%"]
    close = ticks("0", "0.001", "0.2")
    assert {"0", "0.1"} <= set(close)
    assert "0.001" not in close


def test_a_metric_goes_by_the_words_that_the_study_has_for_it(tmp_path: Path, drawn: list[Axes]) -> None:
    runs = [recorded(tmp_path / "a", [[1, 10], [2, 20], [3, 30]])]
    asked = FigureSpec(y="train_loss", x="train_loss@2", log=True)
    draw_points(runs, asked, tmp_path / "any.png", {"train_loss": "training loss"})
    draw_points(runs, asked, tmp_path / "any.png", {})
    assert [axes.get_xlabel() for axes in drawn] == ["training loss 2 rounds before", "train_loss 2 rounds before"]


def test_a_figure_says_whose_accuracy_it_shows(tmp_path: Path, drawn: list[Axes]) -> None:
    own = recorded(tmp_path / "own", [[0.1, 0.2], [0.3, 0.4]], metric="test_accuracy")
    average = recorded(tmp_path / "average", [[0.1], [0.3]], metric="test_accuracy")
    lines = average.path / "store" / "metrics-fleet.jsonl"
    lines.write_text(lines.read_text().replace('"node": 0', '"node": null'))
    asked = FigureSpec(y="test_accuracy", x="round")
    for run in (own, average):
        draw_curves([run], asked, tmp_path / "any.png")
    draw_points([own], FigureSpec(y="test_accuracy", x="test_accuracy@1"), tmp_path / "any.png", {})
    draw_curves([own], asked.model_copy(update={"label": "my words"}), tmp_path / "any.png")
    each, mean = "test accuracy (nodes' own models)", "test accuracy (average model)"
    assert [axes.get_ylabel() for axes in drawn if axes.get_ylabel()] == [each, mean, each, "my words"]
    point = GridPoint("", (("nodes", "3"),), 0, {"test_accuracy": (0.1, 0.2)})
    assert figure_of([point], FigureSpec(y="test_accuracy", x="nodes")).axes[0].get_ylabel() == mean


@pytest.mark.usefixtures("unsaved")
def test_a_study_draws_what_its_runs_recorded(tmp_path: Path) -> None:
    (tmp_path / "curves.yaml").write_text(STUDY)
    assert sweep(tmp_path / "curves.yaml", out=tmp_path / "out", console=Console(file=io.StringIO())) == 0
    folder = tmp_path / "out" / "weights"
    drawn = {"error_by_bytes_sent", "weight_by_round", "error_by_round", "weight_by_weight"}
    drawn |= {"error_learning", "consensus_distance_learning"}
    assert {file.name for file in (folder / "figures").iterdir()} == {
        f"{name}.{ending}" for name in drawn for ending in ("png", "pdf")
    }
    cell = next(path for path in (folder / "cells").iterdir() if path.is_dir())
    figures = figures_of(CellResult(Cell("", (), 0, ()), cell, 0, {}))
    weights = curve_of([CellResult(Cell("", (), 0, ()), cell, 0, {"rounds": 4})], "weight")
    assert 0 < figures["smallest_weight"] == min(weights.low) < 1 < figures["largest_weight"] == max(weights.high)


def test_a_method_has_one_color_in_all_figures_and_panels() -> None:
    """The push-sum weight is a metric of one method alone, and of another only where messages are lost."""
    metrics = {("a", "0"): "error", ("a", "1"): "error", ("b", "0"): "error", ("b", "1"): "error weight"}
    points = [
        GridPoint(case, (("links.default.loss", loss),), 0, {name: (1.0, 2.0) for name in names.split()})
        for (case, loss), names in metrics.items()
    ]
    colors = {}
    for y in ("error", "weight"):
        axes = figure_of(points, FigureSpec(y=y, x="links.default.loss")).axes[0]
        colors[y] = {str(box.get_label()): box.lines[0].get_color() for box in axes.containers}  # type: ignore[attr-defined]
    assert colors["weight"]["b"] == colors["error"]["b"] != colors["error"]["a"]


@pytest.mark.parametrize(("low", "high"), [(0.31, 0.38), (2.1, 4.9), (0.021, 0.098)])
def test_a_logarithmic_axis_within_a_decade_has_plain_labels(low: float, high: float) -> None:
    figure = Figure()
    axes = figure.add_subplot()
    name_y(axes, FigureSpec(y="error", x="bytes_sent", log=True))
    axes.set_xscale("log")
    label_logs(axes.xaxis, "B")
    axes.plot([low * 1e7, high * 1e7], [low, high])
    figure.canvas.draw()
    by_x, by_y = (
        [each.get_text() for each in axis.get_ticklabels(which="both") if each.get_text()]
        for axis in (axes.xaxis, axes.yaxis)
    )
    bottom, top = axes.get_ylim()
    assert len([text for text in by_y if bottom <= float(text) <= top]) >= 3
    assert len(by_x) >= 3
    assert all(text.endswith((" MB", " kB")) for text in by_x)
