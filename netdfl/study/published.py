"""The papers' printed numbers, as data: every cell of their tables, to be measured again.

`tables.csv` has a row per number: facts as printed, errors of print included, which `notes` name.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from netdfl.core.errors import InputError

_NAMES = {"D-PSGD": "dpsgd", "DynaFed": "dynafed_synonly"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFigure:
    """One printed number, with what it was measured on.

    `paper` is the paper's number in the collection and its name, `003-FedSynSAM`; `table` is as printed,
    `TII`. `metric` is test_acc, train_acc, gap (all in percent), rounds_to_75 (percent) and the like.
    Where the paper prints "more than" (a target that was not reached), `value` is that limit and
    `beyond` is true. `std` is None where none is printed.
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
        """The catalog's name of the algorithm; what FedSynSAM calls DynaFed is `dynafed_synonly`."""
        return _NAMES.get(self.algorithm, self.algorithm.lower().replace("-", "_"))


@cache
def figures() -> tuple[PublishedFigure, ...]:
    """All printed numbers, in the order of the papers and their tables."""
    text = files("netdfl.study").joinpath("tables.csv").read_text(encoding="utf-8")
    return tuple(_figure(row) for row in csv.DictReader(text.splitlines()))


def _figure(row: dict[str, str]) -> PublishedFigure:
    value, std = row["value"], row["std"]
    printed = {name: text for name, text in row.items() if name not in ("value", "std")}
    number = float(value.removeprefix(">"))
    return PublishedFigure(value=number, beyond=value.startswith(">"), std=float(std) if std else None, **printed)


def published(paper: str, table: str) -> tuple[PublishedFigure, ...]:
    """The numbers of one table: `published("003", "TII")`. The paper's number or its name will do.

    Raises InputError, with what there is, for a paper or table that is not known.
    """
    of_paper = [figure for figure in figures() if paper.lower() in _called(figure.paper)]
    if not of_paper:
        raise InputError(f"no paper {paper!r}; expected one of {_listed(figure.paper for figure in figures())}")
    found = tuple(figure for figure in of_paper if figure.table.lower() == table.lower())
    if not found:
        tables = _listed(figure.table for figure in of_paper)
        raise InputError(f"paper {of_paper[0].paper} has no table {table!r}; expected one of {tables}")
    return found


def _called(paper: str) -> tuple[str, ...]:
    number, _, name = paper.lower().partition("-")
    return paper.lower(), number, name


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
