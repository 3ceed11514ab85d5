"""From a printed number to the runs that measure it, or the reason why none can."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from netdfl.core.errors import InputError
from netdfl.study import papers
from netdfl.study.plan import written
from netdfl.study.published import PublishedFigure


@dataclass(frozen=True)
class Trial:
    """A printed number with its name, and either the scenario and overrides that measure it or why there are none.

    `label` is `dataset/partition/graph/algorithm/compressor/row`, without what the table has only one of.
    """

    figure: PublishedFigure
    label: str
    file: str = ""
    sets: tuple[str, ...] = ()
    why_not: str = ""


def trials(figures: Sequence[PublishedFigure]) -> list[Trial]:
    """A trial for every number of a table, in its order."""
    parts = [_parts(figure) for figure in figures]
    varies = [len({part[i] for part in parts}) > 1 for i in range(len(parts[0]))]
    always = (0, 1, 3)
    labels = ["/".join(p for i, p in enumerate(part) if p and (i in always or varies[i])) for part in parts]
    return [_trial(figure, label) for figure, label in zip(figures, labels, strict=True)]


def _parts(figure: PublishedFigure) -> tuple[str, ...]:
    """What names a cell. Graphs are named where a method could have several."""
    graph = figure.topology.removeprefix("server, ").partition(",")[0].partition(" (")[0]
    graph = graph if figure.topology in _NAMED_GRAPHS else ""
    row = figure.notes.removeprefix("equal-compute ").partition(":")[0] if _variant(figure) else ""
    compressor = "" if figure.compressor == "none" else figure.compressor
    metric = "" if figure.metric == "test_acc" else figure.metric
    return figure.dataset, figure.partition, graph, figure.algorithm, compressor, row, metric


_NAMED_GRAPHS = frozenset(
    name for name in papers.TOPOLOGIES if "static" in name or name.startswith(("server, 10 clients", "server, 50"))
)


def _variant(figure: PublishedFigure) -> papers.Methods | None:
    return papers.VARIANTS.get((figure.table, figure.notes))


def _trial(figure: PublishedFigure, label: str) -> Trial:
    try:
        return Trial(figure, label, *_resolve(figure))
    except KeyError as reason:
        return Trial(figure, label, why_not=reason.args[0])


def _resolve(figure: PublishedFigure) -> tuple[str, tuple[str, ...]]:
    """The scenario file and the overrides of a figure. Raises KeyError with the reason why there are none."""
    for known in (papers.NOT_HELD.get(figure.dataset), papers.NOT_MEASURED.get(figure.metric)):
        if known:
            raise KeyError(known)
    clients = next((n for n in ("10 clients", "50 clients") if n in figure.topology), "")
    key = (figure.paper.partition("-")[0], figure.table, figure.dataset, clients)
    file = _known(papers.FILES, key, "no scenario has the setting")
    method = figure.method
    algorithm = dict(_known(papers.METHODS[file], method, f"{file} has no method"))
    topology = papers.FREE_CHOICE.get(method) or _known(papers.TOPOLOGIES, figure.topology, "no graph is known for")
    if "static" in figure.topology and "beta" in algorithm:
        algorithm["beta"] = papers.STABLE_BETA[topology["kind"]]
    algorithm |= (_variant(figure) or {}).get(method, {})
    compressor = _known(papers.COMPRESSORS, figure.compressor, "no compressor is known for")
    if compressor is not None and method in papers.COMPRESSED_CONTROLS:
        compressor = {**compressor, "extras": "compressed"}
    changes = {
        "algorithm.name": method,
        **{f"algorithm.{name}": value for name, value in algorithm.items()},
        "topology": topology,
        "task.dataset.partition": _known(papers.PARTITIONS, figure.partition, "no partition is known for"),
        "compression": compressor,
    }
    return file, tuple(f"{path}={written(value)}" for path, value in changes.items())


def _known(table: Mapping[Any, object], key: object, what: str) -> Any:
    if key not in table:
        words = " ".join(filter(None, key)) if isinstance(key, tuple) else key
        raise KeyError(f"{what} {words}")
    return table[key]


def select(found: Sequence[Trial], globs: Sequence[str]) -> list[Trial]:
    """The trials whose label, or a part of it, matches one of `globs`, whatever the case; all where there are none.

    Raises InputError for a glob that matches nothing.
    """
    for glob in globs:
        if not any(_matches(trial, glob) for trial in found):
            some = ", ".join(dict.fromkeys(trial.label for trial in found[:3]))
            raise InputError(f"--cells {glob!r} matches no cell; cells are named like {some}")
    return [trial for trial in found if not globs or any(_matches(trial, glob) for glob in globs)]


def _matches(trial: Trial, glob: str) -> bool:
    return any(fnmatchcase(name.lower(), glob.lower().rstrip("/")) for name in _names(trial.label))


def _names(label: str) -> Iterator[str]:
    """The label and every part of it that begins and ends at a slash."""
    parts = label.split("/")
    yield from ("/".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1))


def scenario_of(trial: Trial, folder: Path) -> Path:
    """The file of a trial's scenario in `folder`."""
    return folder / f"{trial.file}.yaml"
