"""What axes of a run's figures say to a reader."""

from __future__ import annotations

import pytest

import netdfl
from netdfl.record.run import Run
from netdfl.scenario.load import loads

SCENARIO = """
schema: netdfl/1
name: drawn
nodes: 4
rounds: 3
world: simulated
task: {dataset: {name: digits, partition: iid}, model: {name: mlp, hidden: [4]}, batch_size: 64}
algorithm: {name: dpsgd, lr: 0.1, local_steps: 1}
topology: ring
evaluation: {every: 1}
"""


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return netdfl.run(loads(SCENARIO), out=tmp_path_factory.mktemp("drawn") / "run", page=False).run


def test_an_accuracy_is_drawn_in_percent(drawn: Run) -> None:
    figure = drawn.plot.accuracy()
    figure.canvas.draw()
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["0%", "20%", "40%", "60%", "80%", "100%"]


def test_a_logarithmic_axis_has_plain_labels(drawn: Run) -> None:
    figure = drawn.plot.curve("test_loss", log=True)
    figure.axes[0].set_ylim(1.5, 8)
    figure.canvas.draw()
    axis = figure.axes[0].yaxis
    labels = [label.get_text() for which in ("major", "minor") for label in axis.get_ticklabels(which=which)]
    assert "2" in labels
    assert not [text for text in labels if "10^" in text]
