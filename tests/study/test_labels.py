"""The words of tables and plots for what varies: of mappings what differs, and keys without their path."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.console import Console

from netdfl.scenario.model.study import FigureSpec
from netdfl.study.labels import key_words, labels_of, shortened
from netdfl.study.plots import figure_of, name_of
from netdfl.study.summary import GridPoint
from netdfl.study.sweep import sweep
from tests.in_process import InProcess


def named(path: str, texts: Sequence[str]) -> list[str]:
    """The names that points have if `path` alone varies, with these values."""
    points = [((path, text),) for text in texts]
    labels = labels_of(points)
    return [name_of("", shortened(values, labels)) for values in points]


@pytest.mark.parametrize(
    ("path", "texts", "names"),
    [
        ("algorithm", ["{name: dpsgd, lr: 0.1}", "{name: dfedsam, lr: 0.1, rho: 0.05}"], ["dpsgd", "dfedsam"]),
        (
            "algorithm",
            ["dpsgd", "{name: dfedsam, lr: 0.1, rho: 0.05}", '{"name": "dfedsam", "lr": 0.1, "rho": 0.5}'],
            ["dpsgd", "dfedsam, rho=0.05", "dfedsam, rho=0.5"],
        ),
        ("algorithm", ["{name: dpsgd, lr: 0.1}", "{name: dpsgd, lr: 0.2}"], ["lr=0.1", "lr=0.2"]),
        ("algorithm", ["{name: dpsgd}", "{name: dpsgd, lr: 0.2}"], ["dpsgd", "lr=0.2"]),
        (
            "task.model",
            ["{name: mlp, hidden: [32]}", "{name: mlp, hidden: [64, 32]}"],
            ["hidden=[32]", "hidden=[64, 32]"],
        ),
        (
            "algorithm",
            ["{name: a, optimizer: {kind: adam, lr: 1}}", "{name: a, optimizer: {kind: sgd, lr: 1}}"],
            ["optimizer=adam", "optimizer=sgd"],
        ),
        ("links.default.loss", ["0", "10%", "0.055"], ["loss=0%", "loss=10%", "loss=5.5%"]),
        ("links.default.loss", ["0", "0.1"], ["loss=0", "loss=0.1"]),
        ("links.default.loss", ["0.1", "10%"], ["loss=0.1", "loss=10%"]),
        ("links.default.loss", ["none", "10%"], ["loss=none", "loss=10%"]),
        (
            "algorithm",
            ["{name: a, lr: 1}", "{lr: 1, name: a}"],
            ["algorithm={name: a, lr: 1}", "algorithm={lr: 1, name: a}"],
        ),
    ],
)
def test_a_mapping_is_named_by_what_differs(path: str, texts: list[str], names: list[str]) -> None:
    assert named(path, texts) == names


def test_keys_have_words_and_their_path_only_where_others_end_alike() -> None:
    assert key_words("links.default.loss") == "message loss"
    assert key_words("algorithm.local_epochs") == "local epochs"
    assert key_words("topology.kind", ["topology.kind", "algorithm.name"]) == "topology"
    ends = ["algorithm.weight_decay", "algorithm.optimizer.weight_decay"]
    assert [key_words(path, ends) for path in ends] == ["algorithm weight decay", "algorithm optimizer weight decay"]


def test_neither_long_categories_nor_legends_overlap() -> None:
    values = [f"a_method_with_a_rather_long_name_{number}" for number in range(6)]
    points = [
        GridPoint(f"{case}, which is named at length as well", (("algorithm.name", value),), 0, {"error": (0.1, 0.2)})
        for case in "ab"
        for value in values
    ]
    canvas = FigureCanvasAgg(figure_of(points, FigureSpec(y="error", x="algorithm.name")))
    canvas.draw()
    axes = canvas.figure.axes[0]
    assert axes.get_xlabel() == "algorithm"
    labels = axes.get_xticklabels()
    assert {label.get_rotation() for label in labels} == {20.0}
    (legend,) = canvas.figure.legends
    boxes = [text.get_window_extent() for text in legend.get_texts()]
    assert not any(one.overlaps(two) for one in boxes for two in boxes if one is not two)
    assert all(box.x1 <= canvas.figure.bbox.x1 for box in boxes)


@pytest.mark.usefixtures("undrawn")
def test_tables_of_a_sweep_name_mappings_by_what_differs_and_csv_files_have_all_of_them(tmp_path: Path) -> None:
    file = tmp_path / "few.yaml"
    file.write_text(
        "schema: netdfl/1\nname: few\nnodes: 3\nrounds: 1\nworld: simulated\ntopology: ring\n"
        "task: {kind: quadratic, dim: 2}\nalgorithm: {name: dpsgd, lr: 0.1}\n"
    )
    vary = ["algorithm={name: dpsgd, lr: 0.1},{name: dfedsam, lr: 0.1, rho: 0.05}"]
    said = io.StringIO()
    assert sweep(file, vary, out=tmp_path, seeds=1, console=Console(file=said, width=200), make_runner=InProcess) == 0
    assert "rho" not in (tmp_path / "few/table.md").read_text()
    assert "| dfedsam | 1 |" in (tmp_path / "few/table.md").read_text()
    assert "rho" not in said.getvalue()
    assert "{name: dfedsam, lr: 0.1, rho: 0.05}" in (tmp_path / "few/table.csv").read_text()
