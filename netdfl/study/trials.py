"""The runs that measure a number printed in a paper, or the reason why there are none.

The numbers in the papers' tables are data: `tables.csv` has a row for each, as printed, with misprints named in
`notes`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from netdfl.core.errors import InputError
from netdfl.study import papers
from netdfl.study.merged import written

_NAMES = {"D-PSGD": "dpsgd", "DynaFed": "dynafed_synonly"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFigure:
    """A number printed in a paper, with its setting.

    `paper` is the paper's number in the collection and its name, `003-FedSynSAM`; `table` is as printed, `TII`.
    `metric` is test_acc, train_acc, gap (all in percent), rounds_to_75 (75 % accuracy) and the like. If the paper
    prints "more than", as for a target that was not reached, `value` is that limit and `beyond` is true. `std` is None
    if none is printed.
    """

    paper: str
    table: str
    dataset: str
    partition: str
    topology: str
    algorithm: str
    compressor: str
    metric: str
    value: float
    beyond: bool
    std: float | None
    notes: str

    @property
    def method(self) -> str:
        """The catalog name of the algorithm; FedSynSAM's DynaFed is `dynafed_synonly`."""
        return _NAMES.get(self.algorithm, self.algorithm.lower().replace("-", "_"))


@cache
def figures() -> tuple[PublishedFigure, ...]:
    """Return all printed numbers, in the order of papers and tables."""
    text = files("netdfl.study").joinpath("tables.csv").read_text(encoding="utf-8")
    return tuple(_figure(row) for row in csv.DictReader(text.splitlines()))


def _figure(row: dict[str, str]) -> PublishedFigure:
    value, std = row["value"], row["std"]
    printed = {name: text for name, text in row.items() if name not in ("value", "std")}
    number = float(value.removeprefix(">"))
    return PublishedFigure(value=number, beyond=value.startswith(">"), std=float(std) if std else None, **printed)


def published(paper: str, table: str) -> tuple[PublishedFigure, ...]:
    """Return the numbers of one table, as in `published("003", "TII")`. `paper` is the paper's number or name.

    Raises InputError, with the known names, for an unknown paper or table.
    """
    wanted = paper.lower()
    of_paper = [each for each in figures() if wanted in (each.paper.lower(), *each.paper.lower().split("-", 1))]
    if not of_paper:
        raise InputError(f"no paper {paper!r}; expected one of {_listed(figure.paper for figure in figures())}")
    found = tuple(figure for figure in of_paper if figure.table.lower() == table.lower())
    if not found:
        tables = _listed(figure.table for figure in of_paper)
        raise InputError(f"paper {of_paper[0].paper} has no table {table!r}; expected one of {tables}")
    return found


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


@dataclass(frozen=True)
class FigureSetup:
    """A printed number with the scenario and overrides that measure it, or the reason why there are none.

    Attributes:
        figure: the printed number.
        label: `dataset/partition/graph/algorithm/compressor/row`, without parts that are the same in the whole table.
        file: the name of the scenario file; empty if there is none.
        sets: the overrides.
        why_not: the reason; empty if the number can be measured.
    """

    figure: PublishedFigure
    label: str
    file: str = ""
    sets: tuple[str, ...] = ()
    why_not: str = ""


def trials(figures: Sequence[PublishedFigure]) -> list[FigureSetup]:
    """Return a setup (scenario and overrides) for every number of a table, in order."""
    parts = [_parts(figure) for figure in figures]
    varies = [len({part[i] for part in parts}) > 1 for i in range(len(parts[0]))]
    always = (0, 1, 3)
    labels = ["/".join(p for i, p in enumerate(part) if p and (i in always or varies[i])) for part in parts]
    return [_trial(figure, label) for figure, label in zip(figures, labels, strict=True)]


def _parts(figure: PublishedFigure) -> tuple[str, ...]:
    """Return the parts of the label of a number's cell; the graph is included if methods may be run on several."""
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


def _trial(figure: PublishedFigure, label: str) -> FigureSetup:
    try:
        return FigureSetup(figure, label, *_resolve(figure))
    except KeyError as reason:
        return FigureSetup(figure, label, why_not=reason.args[0])


def _resolve(figure: PublishedFigure) -> tuple[str, tuple[str, ...]]:
    """Return the scenario file and overrides that measure a printed number.

    Raises KeyError, with the reason, if it can't be measured.
    """
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


def select(found: Sequence[FigureSetup], globs: Sequence[str]) -> list[FigureSetup]:
    """Return the setups whose label, or a part of it, matches one of `globs` in any case; all setups without globs.

    Raises InputError for a glob that matches nothing.
    """
    for glob in globs:
        if not any(_matches(trial, glob) for trial in found):
            some = ", ".join(dict.fromkeys(trial.label for trial in found[:3]))
            raise InputError(f"--cells {glob!r} matches no cell; cells are named like {some}")
    return [trial for trial in found if not globs or any(_matches(trial, glob) for glob in globs)]


def _matches(trial: FigureSetup, glob: str) -> bool:
    return any(fnmatchcase(name.lower(), glob.lower().rstrip("/")) for name in _names(trial.label))


def _names(label: str) -> Iterator[str]:
    """Yield the label, and every sequence of neighboring parts of it: for `a/b/c` also `a/b`, `b/c`, `a`, `b`, `c`."""
    parts = label.split("/")
    yield from ("/".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1))


def scenario_of(trial: FigureSetup, folder: Path) -> Path:
    """Return the path of a setup's scenario file in `folder`."""
    return folder / f"{trial.file}.yaml"
