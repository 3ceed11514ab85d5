"""Small modules of many kinds, one a row of `ROWS`: each trains in netdfl as in a plain loop (`test_like_plain_torch`).

To add one: a class, or a function that gives a module, and a line in the table. Where a row can't be equal bit for bit,
it states the bound and the reason.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parametrizations
from torch.utils.data import Dataset

CLASSES, TRAIN, TEST = 3, 20, 12
Data = tuple[Any, Any]


def _generator(part: str) -> torch.Generator:
    return torch.Generator().manual_seed(len(part))


def _classes(of: Tensor) -> Tensor:
    """As many of each class, by how large the inputs are."""
    order = of.flatten(1).double().sum(1).argsort().argsort()
    return order * CLASSES // len(of)


def pictures(num: int, part: str) -> Data:
    x = torch.rand(num, 1, 6, 6, generator=_generator(part))
    return x, _classes(x)


def tokens(num: int, part: str) -> Data:
    x = torch.randint(1, 11, (num, 5), generator=_generator(part))
    x[::3, 4] = 0  # padding
    return x, _classes(x)


def series(num: int, part: str) -> Data:
    x = torch.rand(num, 5, 3, generator=_generator(part))
    return x, _classes(x)


DRAWS: dict[str, Callable[[], float]] = {
    "torch": lambda: float(torch.randn(1)),
    "numpy": lambda: float(np.random.normal()),
    "python": lambda: random.gauss(0, 1),
}


class Drawn(Dataset[tuple[Tensor, Tensor]]):
    """Examples to each of which noise is added whenever it is read."""

    def __init__(self, x: Tensor, y: Tensor, source: str) -> None:
        self.x, self.y, self.draw = x, y, DRAWS[source]

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, k: int) -> tuple[Tensor, Tensor]:
        return self.x[k] + 0.1 * self.draw(), self.y[k]


@dataclass(frozen=True)
class Row:
    """`make` gives the module; `loss` is cross-entropy where none is given; figures differ by `bound`, for `why`.

    `read` names the generator by which noise is added to an example that is read. A row of another type than float32,
    whose inputs take the type of the whole, or that would differ there is not put `beside` the others.
    """

    make: Callable[[], nn.Module]
    data: Callable[[int, str], Data] = pictures
    loss: Callable[[Any, Any], Tensor] | None = None
    bound: float = 0.0
    why: str = ""
    read: str = ""
    beside: bool = True


def head(*layers: nn.Module, width: int = 8) -> nn.Sequential:
    """`layers` between a linear layer on the pixels and one that gives the classes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(36, width), *layers, nn.Linear(width, CLASSES))


class Convolved(nn.Module):
    """A convolution, what comes after it, and a linear layer."""

    def __init__(self, after: nn.Module) -> None:
        super().__init__()
        self.conv, self.after, self.last = nn.Conv2d(1, 4, 3), after, nn.Linear(4 * 16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.after(self.conv(x)).flatten(1))


class Tied(nn.Module):
    """The last layer is the embedding's."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.mix, self.last = nn.Linear(6, 6), nn.Linear(6, 11, bias=False)
        self.last.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.mix(self.embed(x).mean(1))))[:, :CLASSES]


class UsedTwice(nn.Module):
    """One hidden layer, used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.hidden, self.last = nn.Linear(36, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.hidden(torch.relu(self.hidden(torch.relu(self.first(x.flatten(1)))))))


class Frozen(nn.Module):
    """A first layer that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(36, 8).requires_grad_(False), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x.flatten(1))))


class LowRank(nn.Module):
    """A frozen layer, and a trained difference of low rank."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(36, CLASSES).requires_grad_(False)
        self.down, self.up = nn.Linear(36, 2, bias=False), nn.Linear(2, CLASSES, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.base(x) + self.up(self.down(x))


class Recurrent(nn.Module):
    """A GRU over a series, which starts anew for each."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.last = nn.GRU(3, 6, batch_first=True), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.cell(x)[0][:, -1])


class Padded(nn.Module):
    """An embedding whose padding has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.last = nn.Embedding(11, 6, padding_idx=0), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.embed(x).mean(1))


class Noisy(nn.Module):
    """Noise in forward, while it trains."""

    def __init__(self, source: str = "torch") -> None:
        super().__init__()
        self.net, self.draw = head(nn.Tanh()), DRAWS[source]

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x + 0.1 * self.draw() if self.training else x)


class Attending(nn.Module):
    """Self-attention over a series."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.attend = nn.Linear(3, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.last = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        return self.last(self.attend(x, x, x, need_weights=False)[0].mean(1))


class Symmetric(nn.Module):
    """A parametrization: what is used of a square matrix is its symmetric part."""

    def forward(self, x: Tensor) -> Tensor:
        return x.triu() + x.triu(1).mT


def parametrized() -> nn.Module:
    net = head(nn.Linear(8, 8), nn.Tanh())
    nn.utils.parametrize.register_parametrization(net[2], "weight", Symmetric())
    return net


class Added(nn.Module):
    """A parametrization: a trained difference of low rank, added to a frozen matrix (LoRA)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.down, self.up = nn.Parameter(torch.randn(2, size) / size), nn.Parameter(torch.zeros(size, 2))

    def forward(self, frozen: Tensor) -> Tensor:
        return frozen + self.up @ self.down


def adapted() -> nn.Module:
    layer = nn.Linear(8, 8)
    layer.weight.requires_grad_(False)
    nn.utils.parametrize.register_parametrization(layer, "weight", Added(8))
    return head(nn.Tanh(), layer)


def twice_in_a_sequence() -> nn.Module:
    """A perceptron but for its hidden layer, which it uses twice."""
    hidden = nn.Linear(8, 8)
    return head(nn.ReLU(), hidden, nn.ReLU(), hidden, nn.ReLU())


def tied_in_a_sequence() -> nn.Module:
    """A perceptron but for two hidden layers that have one weight."""
    one, other = nn.Linear(8, 8), nn.Linear(8, 8)
    other.weight = one.weight
    return head(nn.ReLU(), one, nn.ReLU(), other, nn.ReLU())


class Sparse(nn.Module):
    """An embedding whose gradients are sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.last = nn.Embedding(11, 6, sparse=True), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.embed(x).mean(1))


@dataclass
class Said:
    """Outputs as an object, with what is left empty."""

    scores: Tensor
    hidden: Tensor | None = None


class Saying(nn.Module):
    """Its outputs are an object."""

    def __init__(self) -> None:
        super().__init__()
        self.net = head(nn.ReLU())

    def forward(self, x: Tensor) -> Said:
        return Said(self.net(x))


def of_said(outputs: Any, y: Tensor) -> Tensor:
    return cross_entropy(outputs.scores, y)


class InPlace(nn.Module):
    """It scales its inputs in place."""

    def __init__(self) -> None:
        super().__init__()
        self.net = head(nn.ReLU(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.sub_(0.5).div_(2.0))


class Short(nn.Module):
    """An embedding whose rows are made no longer than 1 as they are used. Another layer's parameters come first."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.embed = nn.Linear(6, CLASSES), nn.Embedding(11, 6, padding_idx=0, max_norm=1.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.embed(x).mean(1))


class Remembering(nn.Module):
    """A recurrent layer that goes on where the last minibatch ended, by an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.last = nn.RNN(3, 6, batch_first=True), nn.Linear(6, CLASSES)
        self.h: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        start = None if self.h is None or self.h.shape[1] != len(x) else self.h
        found, h = self.cell(x, start)
        self.h = h.detach()
        return self.last(found[:, -1])


class AtTimes(nn.Module):
    """Scales that change at every fifth call, by a count of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.net = head(nn.ReLU())
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("scale", torch.ones(CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.net(x)
        if self.training:
            self.calls += 1
            if int(self.calls) % 5 == 0:
                self.scale = 0.9 * self.scale + 0.1 * scores.detach().abs().mean(0)
        return scores / self.scale


class Averaging(nn.Module):
    """A running mean of its own making, and a teacher that follows the layer that it teaches."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.teacher = nn.Linear(36, CLASSES), nn.Linear(36, CLASSES).requires_grad_(False)
        self.register_buffer("mean", torch.zeros(36))

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        if self.training:
            with torch.no_grad():
                self.mean.lerp_(x.mean(0), 0.1)
                for theirs, ours in zip(self.teacher.parameters(), self.layer.parameters(), strict=True):
                    theirs.lerp_(ours, 0.2)
        return self.layer(x - self.mean) + 0.5 * self.teacher(x)


class Queued(nn.Module):
    """A queue of what it saw, with the place of its end: buffers of numbers, real and whole."""

    def __init__(self) -> None:
        super().__init__()
        self.net = head(nn.Tanh())
        self.register_buffer("queue", torch.zeros(12, CLASSES))
        self.register_buffer("end", torch.zeros(1, dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.net(x) - self.queue.mean(0)
        if self.training:
            end = int(self.end)
            place = torch.arange(end, end + len(x)) % 12
            self.queue[place] = scores.detach()
            self.end[0] = (end + len(x)) % 12
        return scores


def closed_over() -> nn.Module:
    """What it has seen stands in what a function closes over, that takes the place of a layer's own."""
    net, calls, seen = head(nn.Tanh()), 0, {"mean": 0.0}
    last, plain = net[-1], net[-1].forward

    def forward(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if last.training:
            seen["mean"] += 0.1 * (float(x.detach().mean()) - seen["mean"])
        return plain(x - seen["mean"]) * (1 + 0.01 * (calls % 3) * last.training)

    last.forward = forward
    return net


class Named(nn.Module):
    """Its outputs are a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.net = head(nn.ReLU())

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        scores = self.net(x)
        return {"scores": scores, "size": scores.square().mean(1)}


def of_named(outputs: Any, y: Tensor) -> Tensor:
    return cross_entropy(outputs["scores"], y) + 0.01 * outputs["size"].mean()


FORMULA = "a perceptron's gradient is computed by its formula, equal up to rounding"
SUMMED = "plain PyTorch adds the gradients of a row that comes several times to it one by one"
KEPT = "between steps the numbers of such a model are kept in float32, where plain PyTorch rounds them to its type"
ALIGNMENT = "a matrix times a vector is summed in an order that depends on where in memory the matrix begins"
ROWS: dict[str, Row] = {
    "a perceptron": Row(lambda: head(nn.ReLU()), bound=1e-6, why=FORMULA),
    "tied weights": Row(Tied, tokens),
    "a layer used twice": Row(UsedTwice),
    "a frozen layer": Row(Frozen),
    "a low rank beside a frozen layer": Row(LowRank),
    "lazy layers": Row(lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.Tanh(), nn.LazyLinear(CLASSES))),
    "batch norm": Row(lambda: Convolved(nn.Sequential(nn.BatchNorm2d(4), nn.ReLU()))),
    "batch norm by a cumulative mean": Row(lambda: Convolved(nn.BatchNorm2d(4, momentum=None))),
    "instance norm": Row(lambda: Convolved(nn.InstanceNorm2d(4, affine=True, track_running_stats=True))),
    "group norm": Row(lambda: Convolved(nn.Sequential(nn.GroupNorm(2, 4), nn.ReLU(inplace=True)))),
    "layer norm": Row(lambda: head(nn.LayerNorm(8), nn.GELU())),
    "weight norm": Row(lambda: head(nn.Tanh(), parametrizations.weight_norm(nn.Linear(8, 8)))),
    "dropout": Row(lambda: head(nn.ReLU(), nn.Dropout(0.4))),
    "a recurrent layer": Row(Recurrent, series),
    "attention": Row(Attending, series),
    "an embedding with padding": Row(Padded, tokens),
    "noise in forward": Row(Noisy),
    "noise of numpy's in forward": Row(lambda: Noisy("numpy")),
    "noise of Python's in forward": Row(lambda: Noisy("python")),
    "a parametrization": Row(parametrized),
    "a low rank as a parametrization": Row(adapted),
    "a layer used twice in a sequence": Row(twice_in_a_sequence),
    "tied weights in a sequence": Row(tied_in_a_sequence),
    "a sparse embedding": Row(Sparse, tokens, bound=5e-6, why=SUMMED, beside=False),
    "a model in double": Row(lambda: head(nn.Tanh()).double(), beside=False),
    "a perceptron in double": Row(lambda: head(nn.ReLU()).double(), bound=1e-14, why=FORMULA, beside=False),
    "a model in bfloat16": Row(lambda: head(nn.Tanh()).bfloat16(), bound=0.02, why=KEPT, beside=False),
    "inputs changed in place": Row(InPlace),
    "an embedding with a largest norm": Row(Short, tokens),
    "spectral norm": Row(
        lambda: head(nn.Tanh(), parametrizations.spectral_norm(nn.Linear(8, 8))), bound=1e-6, why=ALIGNMENT
    ),
    "a hidden state that goes on": Row(Remembering, series),
    "buffers that change at times": Row(AtTimes),
    "a mean and a teacher": Row(Averaging),
    "a queue and its end": Row(Queued),
    "a closure": Row(closed_over),
    "outputs by name": Row(Named, loss=of_named),
    "outputs as an object": Row(Saying, loss=of_said),
}


COMPILED = {"a compiled module": Row(lambda: torch.compile(head(nn.Tanh()), backend="eager"))}  # type: ignore[return-value]
NOISY = {f"noise of {source} in examples": Row(lambda: head(nn.Tanh()), read=source) for source in DRAWS}


# all of them at once, for worlds whose fleets take long to start

BESIDE = {name: row for name, row in ROWS.items() if row.beside}


class Together(nn.Module):
    """The modules of all rows side by side, each with inputs, outputs and a loss of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.ModuleList([row.make() for row in BESIDE.values()])

    def forward(self, **x: Any) -> dict[str, Any]:
        inputs = [x[row.data.__name__].clone() for row in BESIDE.values()]
        return {name: part(given) for name, part, given in zip(BESIDE, self.each, inputs, strict=True)}


def of_all(num: int, part: str) -> Data:
    """The data of all rows by the names of their kinds."""
    found = {kind.__name__: kind(num, part) for kind in dict.fromkeys(row.data for row in BESIDE.values())}
    return {name: x for name, (x, _) in found.items()}, {name: y for name, (_, y) in found.items()}


def sum_of_all(outputs: Any, y: Any) -> Tensor:
    """No module's gradient sees another's loss."""
    losses = [(row.loss or cross_entropy)(outputs[name], y[row.data.__name__]) for name, row in BESIDE.items()]
    return torch.stack([loss.double() for loss in losses]).sum()


TOGETHER = "all rows together"
ALL = ROWS | NOISY | COMPILED | {TOGETHER: Row(Together, of_all, sum_of_all, bound=1e-6, why=ALIGNMENT)}


# what a scenario names


def made(shape: tuple[int, ...], num_classes: int, /, *, row: str) -> nn.Module:
    """The model of a row."""
    return ALL[row].make()


def data(*, row: str, clients: int) -> Any:
    """The data of a row: each client's own, and a test set."""
    from netdfl import Datasets

    take, read = ALL[row].data, ALL[row].read
    each: list[Any] = [take(TRAIN, "x" * client) for client in range(1, clients + 1)]
    return Datasets(clients=[Drawn(*pair, read) for pair in each] if read else each, test=take(TEST, ""))


def loss(outputs: Any, targets: Any, /, *, row: str) -> Tensor:
    """The loss of a row."""
    return (ALL[row].loss or cross_entropy)(outputs, targets)


def size(outputs: Any, targets: Any, /) -> float:
    """A figure of any outputs."""
    if isinstance(outputs, dict):
        return sum(size(part, targets) for part in outputs.values())
    outputs = getattr(outputs, "scores", outputs)
    return float(outputs.double().abs().mean())
