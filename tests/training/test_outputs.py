"""Outputs keep their type for losses and figures: objects with attributes, dataclasses, mappings, None inside."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import netdfl
from netdfl.core.errors import ScenarioError
from netdfl.training.tasks.outputs import on_cpu, together


class Attributed(OrderedDict[str, Any]):
    """A mapping whose entries are attributes as well, as Hugging Face's outputs are."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass
class Plain:
    """Logits, and what most models leave empty."""

    logits: Tensor
    hidden: Tensor | None = None
    kind: str = "plain"


@dataclass(frozen=True, slots=True)
class Frozen:
    """Attributes that nobody sets."""

    logits: Tensor
    hidden: None = None


class Dressed:
    """An ordinary object whose constructor takes something else."""

    def __init__(self, scores: list[float]) -> None:
        self.logits, self.hidden = torch.tensor(scores), None


Named = namedtuple("Named", "logits hidden")

KINDS: list[Callable[[Tensor], Any]] = [
    lambda scores: Attributed(logits=scores, hidden=None),
    lambda scores: Plain(scores),
    lambda scores: Frozen(scores),
    lambda scores: Dressed(scores.tolist()),
    lambda scores: Named(scores, None),
    lambda scores: SimpleNamespace(logits=scores, hidden=None),
]


@pytest.mark.parametrize("make", KINDS)
def test_minibatches_are_joined_in_an_object_of_their_type(make: Callable[[Tensor], Any]) -> None:
    batches = [make(torch.tensor([1.0, 2.0])), make(torch.tensor([3.0]))]
    found = together([on_cpu(each) for each in batches])
    assert type(found) is type(batches[0])
    assert found.logits.tolist() == [1, 2, 3]
    assert found.hidden is None
    assert batches[0].logits.tolist() == [1, 2]


def test_tensors_are_joined_wherever_they_are_and_all_else_is_left() -> None:
    def batch(*numbers: float) -> Any:
        scores = torch.tensor(numbers)
        many = [scores, (scores * 2, None)]
        return {"many": many, "loss": scores.mean(), "odd": torch.ones(1, len(numbers)), "name": "net", "shape": (1, 2)}

    found = together([batch(1.0, 2.0), batch(3.0)])
    assert found["many"][0].tolist() == [1, 2, 3]
    assert found["many"][1][0].tolist() == [2, 4, 6]
    assert (found["many"][1][1], found["loss"], found["odd"]) == (None, None, None)
    assert (found["name"], found["shape"]) == ("net", (1, 2))
    assert isinstance(found["many"], list)
    assert together([torch.ones(2), torch.ones(1)]).shape == (3,)


MODEL = """
from collections import OrderedDict
from dataclasses import dataclass
import torch
from torch import nn

@dataclass
class Said:
    logits: torch.Tensor
    hidden: torch.Tensor | None = None

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 2)
    def forward(self, x):
        return Said(self.last(x))

def data():
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    return (x[:40], y[:40]), (x[40:], y[40:])

def loss(outputs, targets, /):
    return nn.functional.cross_entropy(outputs.logits, targets)

def right(outputs, targets, /):
    return float((outputs.logits.argmax(1) == targets).double().mean())
"""


def _scenario(folder: Path, task: str) -> Path:
    (folder / "objects.py").write_text(MODEL)
    path = folder / "s.yaml"
    path.write_text(
        "schema: netdfl/1\nname: objects\nnodes: 2\nrounds: 3\nworld: simulated\n"
        f'task: {{dataset: {{name: "objects:data"}}, model: {{name: "objects:Net"}}, batch_size: 8{task}}}\n'
        "algorithm: {name: dfedavg, lr: 1.0, local_epochs: 1}\ntopology: ring\n"
    )
    return path


def test_a_loss_and_a_figure_of_ones_own_are_given_the_models_own_object(tmp_path: Path) -> None:
    asked = ', loss: "objects:loss", metrics: ["objects:right"], eval_batch: 7'
    done = netdfl.run(_scenario(tmp_path, asked), out=tmp_path / "run")
    assert done.result["metrics"]["test_right"]["last"] > 0.8


@pytest.mark.parametrize("asked", ["", ", loss: mse", ', loss: "objects:loss", metrics: [accuracy]'])
def test_netdfls_own_losses_and_figures_of_an_object_are_refused_in_a_sentence(tmp_path: Path, asked: str) -> None:
    with pytest.raises(ScenarioError, match="the model gives Said, where netdfl's own losses and figures take one"):
        netdfl.load(_scenario(tmp_path, asked))
