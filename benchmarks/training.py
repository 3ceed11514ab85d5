"""Local training of many clients in one process: the training service beside the machine's peak and a plain loop.

    python benchmarks/training.py [--repeats 3] [--quick] [--gpu]

Prints a JSON list of rows: name, value, unit, reference, reference_value, ratio. The peak is that of a matrix
multiplication on every core at once, measured between the other figures; medians of the repeats count on both
sides. A share of the peak is given twice: by the usual count, 6 operations for each weight and example and
gradient, and by what is really computed, which is less, because nobody asks how the loss depends on the inputs.
The plain loop is `torch.optim.SGD` on one client after the other. GPU rows need a GPU, and are left out without.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from figures import Row, show
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from netdfl.algorithms.base import Algorithm, LocalRound, NodeState
from netdfl.algorithms.exchange import WaitPolicy
from netdfl.core.process import freed_kept
from netdfl.core.rng import Streams
from netdfl.core.types import View
from netdfl.training.alone import one_by_one
from netdfl.training.base import Received
from netdfl.training.classification import Classification
from netdfl.training.data.examples import Samples, in_memory
from netdfl.training.flat import FlatModel
from netdfl.training.models.build import seeded_module
from netdfl.training.models.catalog import MODELS
from netdfl.training.service import Service
from netdfl.training.sgd import LocalSgd, NoState, PlainStart

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.training.torch_alone import of_torch_alone

VIEW = View(0, 0, 2, (), (), 1.0, {}, {})
DISTINCT = 100
Compute = Callable[[Sequence[Callable[[], Any]]], Sequence[Any]]


class Setting(NamedTuple):
    """What each of the clients trains."""

    model: str
    shape: tuple[int, ...]
    samples: int
    batch: int
    epochs: int
    params: dict[str, Any]

    def clients(self, num: int, device: str = "cpu") -> list[Classification]:
        """Clients with one model, each with data of its own; more than `DISTINCT` share theirs."""
        module = seeded_module(lambda: MODELS[self.model](self.shape, 10, **self.params), 0).to(device)
        found: list[Classification] = []
        model = FlatModel(module)
        start = model.flat()
        for node in range(num):
            samples = found[node % DISTINCT].samples if node >= DISTINCT else self._samples(node, device)
            found.append(
                Classification(
                    model, start, samples, node=node, streams=Streams(0), batch_size=self.batch, num_labels=10
                )
            )
        return found

    def _samples(self, node: int, device: str) -> Samples:
        generator = torch.Generator().manual_seed(node)
        x = torch.randn(self.samples, *self.shape, generator=generator)
        return Samples(x.to(device), torch.randint(0, 10, (self.samples,), generator=generator).to(device))

    @property
    def steps(self) -> int:
        """Steps of a client's round."""
        return self.epochs * -(-self.samples // self.batch)

    def computed(self, client: Classification) -> int:
        """Operations of matrix products and convolutions in the gradients of a round, as they are computed."""
        x, y = client.samples.take(torch.arange(self.batch))
        at = client.initial()
        with FlopCounterMode(display=False) as counter:
            client.model.slope(at, x, y, torch.empty_like(at))
        return int(counter.get_total_flops()) * self.samples * self.epochs // len(y)

    def usual(self, client: Classification) -> int:
        """The same by the usual count: 6 for each weight and example. For models of linear layers."""
        weights = sum(p.numel() for p in client.model.parameters if p.dim() > 1)
        return 6 * weights * self.samples * self.epochs


MNIST = Setting("mnist_2nn", (1, 28, 28), 600, 128, 5, {})
SMALL = Setting("mlp", (64,), 320, 32, 5, {"hidden": [64, 64]})
CONVOLUTIONS = {
    "cifar_cnn": Setting("cifar_cnn", (3, 32, 32), 1280, 128, 1, {}),
    "convnet": Setting("convnet", (3, 32, 32), 1280, 128, 1, {}),
}
ON_GPU = {
    "the CIFAR network": Setting("cifar_cnn", (3, 32, 32), 500, 50, 1, {}),
    "FedSynSAM's ConvNet": Setting("convnet", (3, 32, 32), 1280, 128, 1, {}),
    "ResNet-18-GN": Setting("resnet18_gn", (3, 32, 32), 500, 50, 1, {}),
}


def rounds(clients: list[Classification], solver: LocalSgd) -> list[LocalRound]:
    """A local round of every client."""
    algorithm = Algorithm(family="server", start=PlainStart(), local=solver, mixing=None, wait=WaitPolicy())
    states = (NodeState(0, c.initial(), NoState(), NoState(), None, Received()) for c in clients)
    return [LocalRound(s, algorithm, c.data(0), VIEW) for s, c in zip(states, clients, strict=True)]


def seconds(clients: list[Classification], solver: LocalSgd, compute: Compute) -> float:
    """What a round of all clients takes."""
    calls = rounds(clients, solver)
    return timed(lambda: check(compute(calls)))


def check(outcomes: Sequence[Any]) -> None:
    for _, error in outcomes:
        if error is not None:
            raise error


def timed(work: Callable[[], object]) -> float:
    """Seconds of the clock on the wall, the GPU's work included."""
    began = now()
    work()
    return now() - began


def now() -> float:
    """The clock, once the GPU has done what it was told."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def plain_seconds(
    setting: Setting, clients: list[Classification], device: str = "cpu", module: nn.Module | None = None
) -> float:
    """A round of all clients by torch's own means, one after the other: a module, autograd, `torch.optim.SGD`."""
    modules: list[nn.Module] = [deepcopy(module or clients[0].model.module) for _ in clients]

    def loop() -> None:
        for module, client in zip(modules, clients, strict=True):
            samples = in_memory(client.samples)
            optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
            for _ in range(setting.epochs):
                for chosen in torch.randperm(setting.samples, device=device).split(setting.batch):
                    optimizer.zero_grad()
                    cross_entropy(module(samples.x[chosen]), samples.y[chosen]).backward()
                    optimizer.step()

    return timed(loop)


def peak(threads: int, size: int = 1024, repeats: int = 16) -> float:
    """Operations a second of `threads` matrix multiplications at once."""
    a, b = torch.randn(size, size), torch.randn(size, size)

    def work(_: int) -> None:
        out = torch.empty(size, size)
        for _ in range(repeats):
            torch.mm(a, b, out=out)

    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        list(pool.map(work, range(threads)))
        took = timed(lambda: list(pool.map(work, range(threads))))
    return 2 * size**3 * repeats * threads / took


def gpu_peak(size: int = 8192) -> float:
    """Operations a second of a matrix multiplication of float32 on the GPU."""
    a = torch.randn(size, size, device="cuda")
    torch.mm(a, a)
    return 2 * size**3 * 10 / timed(lambda: [torch.mm(a, a) for _ in range(10)])


def near_the_peak(num: int, repeats: int, service: Service) -> list[Row]:
    """`mnist_2nn`: the share of the peak, with SGD and with SAM."""
    clients, found = MNIST.clients(num), []
    for name, rho in (("SGD", 0.0), ("SAM", 0.1)):
        solver = LocalSgd(lr=0.01, epochs=MNIST.epochs, momentum=0.9, rho=rho)
        pairs = [(seconds(clients, solver, service.compute), peak(service.threads)) for _ in range(repeats)]
        took, highest = (median(values) for values in zip(*pairs, strict=True))
        gradients = num * (2 if rho else 1)
        for count, flops in (
            ("usual count", MNIST.usual(clients[0])),
            ("computed", MNIST.computed(clients[0])),
        ):
            speed = gradients * flops / took
            title = f"mnist_2nn, {num} clients, {name} with momentum, {count}"
            found.append(Row(title, speed / 1e9, "GFLOP/s", "matrix multiplication", highest / 1e9, speed / highest))
    return found


def small_model(num: int, repeats: int, service: Service) -> list[Row]:
    """The small model: time of a step of a client, beside a plain loop and our own one by one."""
    clients, steps = SMALL.clients(num), num * SMALL.steps
    solver = LocalSgd(lr=0.01, epochs=SMALL.epochs, momentum=0.9)
    ways: dict[str, Callable[[], float]] = {
        "service": lambda: seconds(clients, solver, service.compute),
        "torch.optim.SGD one by one": lambda: plain_seconds(SMALL, clients),
        "one by one": lambda: seconds(clients, solver, one_by_one),
    }
    took = {way: 1e6 * median(work() for _ in range(repeats)) / steps for way, work in ways.items()}
    ours = took.pop("service")
    return [
        Row(f"MLP 64-64-64-10, batch 32, {num} clients", ours, "us/step", way, theirs, theirs / ours)
        for way, theirs in took.items()
    ]


def convolutions(repeats: int, service: Service) -> list[Row]:
    """The small picture networks: the share of the peak, and a step beside torch's layers, optimizer and allocator."""
    solver, found = LocalSgd(lr=0.01, epochs=1, momentum=0.9), []
    for name, setting in CONVOLUTIONS.items():
        clients = setting.clients(2)
        with freed_kept():
            seconds(clients, solver, one_by_one)
            pairs = [(seconds(clients, solver, service.compute), peak(service.threads)) for _ in range(repeats)]
            ours = median(seconds(clients, solver, one_by_one) for _ in range(repeats))
        plain = of_torch_alone(deepcopy(clients[0].model.module))
        theirs = median(plain_seconds(setting, clients, module=plain) for _ in range(repeats))
        took, highest = (median(values) for values in zip(*pairs, strict=True))
        speed, steps = len(clients) * setting.computed(clients[0]) / took, len(clients) * setting.steps
        title = f"{name}, batch {setting.batch}"
        row = Row(title, 1e3 * ours / steps, "ms/step", "torch alone, one by one", 1e3 * theirs / steps, theirs / ours)
        found += [row, Row(title, speed / 1e9, "GFLOP/s", "matrix multiplication", highest / 1e9, speed / highest)]
    return found


def growth(name: str, setting: Setting, counts: Sequence[int], repeats: int, service: Service) -> list[Row]:
    """What a client's round takes among more and more clients; a ratio of 1 is linear growth."""
    clients = setting.clients(max(counts))
    solver = LocalSgd(lr=0.01, epochs=setting.epochs, momentum=0.9)
    took = {n: 1e3 * median(seconds(clients[:n], solver, service.compute) for _ in range(repeats)) / n for n in counts}
    first = took[counts[0]]
    return [
        Row(f"{name}: a client's round among {n}", each, "ms", f"among {counts[0]}", first, each / first)
        for n, each in took.items()
    ]


def on_gpu(num: int, repeats: int) -> list[Row]:
    """Networks on a GPU: how much faster than one by one on the same GPU, and the share of its peak."""
    found, best = [], gpu_peak()
    for name, setting in ON_GPU.items():
        clients, service = setting.clients(num, "cuda"), Service("auto")
        solver = LocalSgd(lr=0.01, epochs=setting.epochs, momentum=0.9)
        seconds(clients, solver, service.compute)
        took = median(seconds(clients, solver, service.compute) for _ in range(repeats))
        single = median(seconds(clients, solver, one_by_one) for _ in range(repeats))
        plain = median(plain_seconds(setting, clients, "cuda") for _ in range(repeats))
        title, examples = f"{name}, {num} clients, on a GPU", num * setting.samples * setting.epochs
        for reference, theirs in (("one by one", single), ("torch.optim.SGD one by one", plain)):
            found.append(Row(title, examples / took, "examples/s", reference, examples / theirs, theirs / took))
        speed = num * setting.computed(clients[0]) / took
        found.append(Row(title, speed / 1e9, "GFLOP/s", "matrix multiplication", best / 1e9, speed / best))
        service.close()
    return found


def rows(repeats: int, quick: bool) -> list[Row]:
    """All figures."""
    num, counts = (10, (10, 20)) if quick else (100, (10, 40, 100, 400))
    service = Service("auto")
    found = near_the_peak(num, repeats, service)
    found += convolutions(repeats, service)
    found += small_model(num, repeats, service)
    found += growth("MLP 64-64-64-10", SMALL, counts, repeats, service)
    found += growth("mnist_2nn", MNIST._replace(epochs=1), counts, repeats, service)
    service.close()
    return found + gpu_rows(repeats, quick)


def gpu_rows(repeats: int, quick: bool) -> list[Row]:
    """The figures of a GPU: none without one."""
    if torch.cuda.is_available():
        return on_gpu(10 if quick else 100, repeats)
    print("no GPU that PyTorch can use: its rows are left out", file=sys.stderr)
    return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="few clients: to see that it works")
    parser.add_argument("--gpu", action="store_true", help="the GPU's rows alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    take = gpu_rows if options.gpu else rows
    show(take(options.repeats, options.quick), f"medians of {options.repeats}")


if __name__ == "__main__":
    main()
