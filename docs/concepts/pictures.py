"""Draw the pictures of `docs/concepts.md` from runs of netdfl: `python docs/concepts/pictures.py [FOLDER]`.

Everything runs in virtual time, so that the pictures come out the same wherever they are drawn.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from sklearn.datasets import load_digits

import netdfl
from netdfl.core.rng import Streams
from netdfl.record.plots import draw_partition
from netdfl.record.run import Run
from netdfl.scenario.build import build_network
from netdfl.topology.spectrum import spectral_gap
from netdfl.training.data.partitions import PARTITIONS, label_counts

HERE = Path(__file__).resolve().parent
BLUE, ORANGE, GREEN, PINK, GREY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#767676"
AGREE = {"nodes": 16, "rounds": 40, "task": {"kind": "consensus", "dim": 200}, "algorithm": "dpsgd"}
LATE = {
    "nodes": 8,
    "rounds": 20,
    "task": {"kind": "consensus", "dim": 200},
    "algorithm": "dpsgd",
    "topology": {"kind": "random_sym", "neighbors": 4},
    "wait": {"deadline": "25ms"},
    "world": {"kind": "simulated", "compute": "20ms"},
    "links": {"default": {"latency": {"dist": "exponential", "mean": "12ms"}, "loss": "5%"}},
}


def main(folder: Path) -> None:
    """Draw all of them into `folder`."""
    mpl.rcParams |= {"svg.hashsalt": "netdfl", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False}
    mpl.rcParams |= {"axes.spines.right": False, "legend.frameon": False, "figure.constrained_layout.use": True}
    for name, figure in pictures():
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)


def pictures() -> Iterator[tuple[str, Figure]]:
    """Each picture with its name."""
    yield "mixing", mixing()
    yield "agreement", agreement()
    yield "push_sum", push_sum()
    yield "late", late()
    yield "partitions", partitions()


def mixing() -> Figure:
    """A ring of eight, and who gives whom which weight."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.9))
    ring = nx.cycle_graph(8)
    nx.draw_networkx(ring, nx.circular_layout(ring), ax=left, node_color=BLUE, font_color="white", edge_color=GREY)
    left.set_axis_off()
    left.set_title("who talks with whom")
    matrix = network("ring", 8).matrix(0)
    right.imshow(matrix, cmap="Blues", vmin=0, vmax=0.6)
    for i, j in np.argwhere(matrix > 0):
        right.text(j, i, f"{matrix[i, j]:.2g}"[1:], ha="center", va="center", fontsize=7)
    right.set(xlabel="weight of what node j sent", ylabel="in node i's average", title="mixing matrix")
    return figure


def agreement() -> Figure:
    """How fast sixteen nodes agree on four graphs, beside what the spectral gap foresees."""
    figure, axes = plt.subplots(figsize=(7, 3.2))
    graphs: list[tuple[str, Mapping[str, Any]]] = [
        ("ring", {"kind": "ring"}),
        ("grid", {"kind": "grid"}),
        ("exponential", {"kind": "exponential"}),
        ("4 neighbors, redrawn", {"kind": "random_sym", "neighbors": 4}),
    ]
    for (label, topology), color in zip(graphs, (BLUE, ORANGE, GREEN, PINK), strict=True):
        rounds, distance = fleet_curve(run(AGREE | {"topology": topology}), "consensus_distance")
        found = network(topology, 16)
        if not found.varies:
            gap = spectral_gap(found.matrix(0))
            label += f", gap {gap:.2f}"
            axes.plot(rounds, distance[0] * (1 - gap) ** rounds, ":", color=color, lw=1)
        axes.plot(rounds, distance, color=color, label=label)
    axes.set(yscale="log", ylim=(1e-8, 5), xlabel="round", ylabel="consensus distance")
    axes.legend()
    return figure


def push_sum() -> Figure:
    """Where receivers weigh what comes, the mean drifts on a directed graph; push-sum keeps it."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.9))
    pull = run(AGREE | {"rounds": 15, "topology": {"kind": "random_pull", "neighbors": 3}})
    push = run(AGREE | {"rounds": 15, "algorithm": "sgp", "topology": {"kind": "random_push", "out_neighbors": 3}})
    for name, each, color in (("averages by receivers", pull, ORANGE), ("push-sum", push, BLUE)):
        rounds, error = fleet_curve(each, "error")
        left.plot(rounds, error, color=color, label=name)
    left.set(xlabel="round", ylabel="distance of the fleet's mean\nfrom the true one", ylim=(-0.01, None))
    left.legend(loc="center right")
    weights = push.rows("SELECT node, round, value FROM metrics WHERE name = 'weight' ORDER BY node, round")
    for node in range(16):
        own = [(round, value) for which, round, value in weights if which == node]
        right.plot(*zip(*own, strict=True), color=BLUE, alpha=0.5, lw=1)
    right.axhline(1, color=GREY, lw=1, ls=":")
    right.set(xlabel="round", ylabel="push-sum weight w, a line a node")
    for axes in (left, right):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def late() -> Figure:
    """Messages of a run by how long they took, and what became of them."""
    figure, axes = plt.subplots(figsize=(7, 2.9))
    messages = run(LATE).rows("SELECT fate, round, sent_s, arrived_s FROM messages WHERE kind = 'data'")
    for fates, label, color in ((("delivered",), "delivered", BLUE), (("late",), "late", ORANGE)):
        took = [(round, 1e3 * (then - sent)) for fate, round, sent, then in messages if fate in fates and then]
        axes.scatter(*zip(*took, strict=True), s=9, color=color, label=f"{label}: {len(took)}")
    lost = [round for fate, round, *_ in messages if fate.startswith("dropped")]
    axes.scatter(lost, [-4.0] * len(lost), s=14, marker="x", color=GREY, label=f"lost: {len(lost)}")
    axes.set(xlabel="round", ylabel="time on the link, ms")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper right", ncols=3)
    return figure


def partitions() -> Figure:
    """The handwritten digits, shared out over twelve clients in every way."""
    figure, panels = plt.subplots(2, 4, figsize=(9.6, 4.8), sharex=True, sharey=True)
    digits = load_digits().target
    written = np.arange(len(digits)) // 45  # a column of the data: who wrote the digit, say
    sixth = np.arange(len(digits)) % 6
    halves = [np.flatnonzero((digits // 5 == client % 2) & (sixth == client // 2)) for client in range(12)]
    own = Path(_KEPT.name, "given.json")
    own.write_text(json.dumps([part.tolist() for part in halves]))
    ways: list[tuple[str, dict[str, Any]]] = [
        ("iid", {}),
        ("dirichlet", {"alpha": 1.0}),
        ("dirichlet", {"alpha": 0.1}),
        ("dirichlet_per_class", {"alpha": 0.1}),
        ("shards", {"shards_per_client": 2}),
        ("pathological", {"classes_per_client": 2}),
        ("by_column", {"column": "writer"}),
        ("given", {"file": str(own)}),
    ]
    for (kind, params), axes in zip(ways, panels.flat, strict=True):
        labels = written if kind == "by_column" else digits
        parts = PARTITIONS[kind](labels, 12, Streams(1), **params)
        draw_partition(axes, label_counts(digits, parts, 10).tolist(), range(10))
        said = ", ".join(str(value) for value in params.values() if value != str(own))
        axes.set(title=f"{kind} {said}".strip())
        axes.label_outer()
    return figure


def network(topology: Any, nodes: int) -> Any:
    """The network of a scenario with this topology."""
    return build_network(netdfl.load(scenario(AGREE | {"nodes": nodes, "topology": topology})))


def run(values: Mapping[str, Any]) -> Run:
    """Run a scenario in a folder that is removed at the end."""
    return netdfl.run(
        scenario(values), out=Path(_KEPT.name, str(len(list(Path(_KEPT.name).iterdir())))), page=False
    ).run


def scenario(values: Mapping[str, Any]) -> dict[str, Any]:
    """A scenario of the simulated world."""
    return {"schema": "netdfl/1", "name": "concepts", "seed": 3, "evaluation": {"every": 1}, **values}


def fleet_curve(found: Run, name: str) -> tuple[Any, Any]:
    """Rounds and values of a metric of the fleet."""
    rows = found.rows("SELECT round, value FROM metrics WHERE name = ? AND node IS NULL ORDER BY round", [name])
    rounds, values = zip(*rows, strict=True)
    return np.array(rounds), np.array(values)


_KEPT = TemporaryDirectory()

if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
