"""The output of `netdfl list` on a terminal: all lists, the rows of one list, or one row in full."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, cast

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from netdfl.scenario.explain.keys import CATALOGUE, FIGURES, GRAPHS, KEYS, SCENARIOS, STUDY
from netdfl.scenario.model.algorithm import ALGORITHMS

Row = Mapping[str, Any]
FOLDERS: Mapping[str, str] = {
    "": "To begin with",
    "faults": "faults/: one fault each, and how a fleet takes it",
    "found": "found/: failures that `netdfl explore` found, reduced to what matters",
    "found/proofs": "found/proofs/: counterexamples that `netdfl prove` found, one of each kind",
    "lecture": "lecture/: an hour's course, in order",
    "papers": "papers/: tables of five papers, PAPER_TABLE_DATA; `netdfl reproduce` runs them",
    "smoke": "smoke/: one small fleet of each family",
    "studies": "studies/: sweeps behind the pages of the documentation",
}
"""Headings of `netdfl list scenarios` for the folders of the shipped scenarios."""
_MOST_BETWEEN = 24
_MOST_NAME = 36
"""The longest name of a scenario that leaves room for its sentence beside it."""
_EXAMPLE_GRAPHS = {"undirected": "ring", "directed": "random_push", "full": "full", "star": "star"}


def show_lists(found: Mapping[str, Mapping[str, str]], console: Console) -> None:
    """Print the name of each list with a sentence about it."""
    width = max(len(name) for about in found.values() for name in about)
    for title, about in found.items():
        console.print(Text(title, style="bold"))
        _show(_grid([(name.ljust(width), sentence) for name, sentence in about.items()]), console)
    console.print("`netdfl list algorithms` shows a list, `netdfl list algorithms dfedavg` one of it in full.")


def show_parts(what: str, rows: Sequence[Row], console: Console) -> None:
    """Print one line for each row of a list: its name, its most important columns, and a sentence."""
    if what == SCENARIOS:
        _show_scenarios(rows, console)
    elif what == FIGURES:
        _show(_grid([(row["name"], ", ".join(row["by"]), row["help"]) for row in rows]), console)
        console.print("In a study: `figures: [{y: test_accuracy, x: round}]`. For `varied` write what varies, or case.")
    elif what == STUDY:
        _show(_grid([(row["name"], row["type"], _written(row["default"]), row["help"]) for row in rows]), console)
        console.print("NAME is a name of your own, N a number from 0.")
        console.print("`netdfl validate FILE` checks a study, `netdfl sweep FILE` runs it.")
    elif any("family" in row for row in rows):
        _show_algorithms(rows, console)
    elif any("parameters" in row for row in rows):
        _show(_grid([(row["name"], _sentence(row)) for row in rows]), console)
    else:
        _show(_grid([(row["name"], _written(row["default"]), row["help"]) for row in rows]), console)
    if any("about" in row for row in rows):
        console.print(f"`netdfl list {what} {rows[0]['name']}` shows one of them in full.")


def _show_scenarios(rows: Sequence[Row], console: Console) -> None:
    width = max((len(row["name"]) for row in rows if not _is_long(row)), default=0)
    for folder, within in groupby(rows, key=_folder):
        console.print(Text(FOLDERS.get(folder, f"{folder}/"), style="bold"))
        for long, some in groupby(within, key=_is_long):
            if long:
                _show_below(list(some), console)
            else:
                _show(_grid([(row["name"].ljust(width), row["help"]) for row in some]), console)
    console.print(f"`netdfl explain {rows[0]['name']}` shows one of them before it runs.")
    if len({_folder(row) for row in rows}) > 1:
        console.print("`netdfl list scenarios lecture` lists those of one folder.")


def _folder(row: Row) -> str:
    return str(row["name"]).rpartition("/")[0]


def _is_long(row: Row) -> bool:
    return len(row["name"]) > _MOST_NAME


def _show_below(rows: Sequence[Row], console: Console) -> None:
    """Print each row's name on a line of its own, and its sentence below."""
    for row in rows:
        console.print(Padding(Text(row["name"], style="bold"), (0, 0, 0, 2)))
        console.print(Padding(Text(row["help"]), (0, 0, 0, 6)))


def _show_algorithms(rows: Sequence[Row], console: Console) -> None:
    """Print one line for each algorithm, by the graph that it needs: name, a few words, graph, and paper."""
    lines = [(row["name"], row["brief"], _graph(row), short_source(row["source"])) for row in rows]
    graphs = list(_EXAMPLE_GRAPHS)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading, unbroken in (("algorithm", True), ("what it does", False), ("graph", True), ("paper", False)):
        table.add_column(heading, no_wrap=unbroken, style="bold" if heading == "algorithm" else None)
    for line in sorted(lines, key=lambda line: graphs.index(line[2])):
        table.add_row(*map(Text, line))
    console.print(table)


def short_source(source: str) -> str:
    """Return the first publication of `source` by its first author and year, or by its name: `Lian 2017`, `DFedSAM`."""
    return re.sub(r"(,| et al\.).*(?= \d{4}$)", "", source.partition(";")[0])


def show_part(what: str, row: Row, console: Console) -> None:
    """Print one row in full: its docstring with equations, needs, source, parameters, and an example."""
    console.print(Text(row["name"], style="bold"))
    for paragraph in str(row.get("about") or row["help"]).split("\n\n"):
        console.print(Padding(Text(" ".join(paragraph.split())), (0, 2)))
    facts = list(_facts(row))
    if facts:
        _show(_grid(facts), console)
    if parameters := row.get("parameters"):
        console.print(Text("Parameters and their defaults", style="bold"))
        told = row.get("about_parameters", {})
        lines = [(name, _written(default), told.get(name, "")) for name, default in parameters.items()]
        _show(_grid(lines if told else [line[:2] for line in lines]), console)
    if "family" in row:
        console.print(Text("In a scenario", style="bold"))
        console.print(Padding(Text(example(row)), (0, 2)))
    elif what == SCENARIOS:
        console.print(f"`netdfl explain {row['name']}` shows it before it runs, `netdfl run {row['name']}` runs it.")
    elif what not in CATALOGUE and what not in (FIGURES, STUDY, KEYS):
        console.print(f"It is a key below `{what}`.")


def example(row: Row) -> str:
    """Return the lines of a scenario that select the row's algorithm and a graph that suits it."""
    algorithm = f"{{name: {row['name']}, lr: {row['parameters']['lr']}}}" if "lr" in row["parameters"] else row["name"]
    return f"algorithm: {algorithm}\ntopology: {_example_graph(row)}"


def _example_graph(row: Row) -> str:
    graph, entry = _graph(row), cast(Any, ALGORITHMS.table()[row["name"]])
    if graph == "undirected" and entry.extrapolates:  # lazy weights leave room beyond the mean
        return "{kind: ring, weights: {lazy: true}}"
    return "full" if entry.selects else _EXAMPLE_GRAPHS[graph]


def _facts(row: Row) -> Iterator[tuple[str, str]]:
    if "family" in row:
        yield "graph", _graph(row)
        stochastic = [kind for kind in row["needs"] if kind in ("column", "doubly", "row")]
        if stochastic:
            yield "weights", f"{' or '.join(stochastic)} stochastic"
        yield "source", row["source"]
    if "by" in row:
        yield "drawn by", ", ".join(row["by"])
    if "type" in row:
        yield "type", row["type"]
    if "default" in row:
        yield "default", _written(row["default"])


def _graph(row: Row) -> str:
    return GRAPHS[frozenset(row["needs"])]


def _sentence(row: Row) -> str:
    names = ", ".join(row["parameters"])
    return f"{row['help']} ({names})" if names else str(row["help"])


def _grid(rows: Sequence[Sequence[str]]) -> Table:
    """Return a table without borders; the first column has the rows' names, and the last takes the remaining width."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    for _ in rows[0][2:]:
        table.add_column(max_width=_MOST_BETWEEN)
    table.add_column()
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _show(table: Table, console: Console) -> None:
    console.print(Padding(table, (0, 0, 0, 2)))


def _written(value: object) -> str:
    """Format the default of a parameter as a scenario writes it."""
    if value is None or value in ([], {}, ""):
        return "none"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_written(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)
