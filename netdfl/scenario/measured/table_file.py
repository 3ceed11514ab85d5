"""Link measurements from CSV files: square matrices, tables with one pair per line, and iperf output."""

from __future__ import annotations

import csv
from collections.abc import Sequence

from netdfl.core.given_files import ending_of, given_text
from netdfl.scenario.measured.graph_file import MeasuredNetwork
from netdfl.scenario.measured.latency_json import matrix_rows
from netdfl.scenario.measured.said import (
    DOWN,
    LATENCY,
    RATE,
    RTT,
    UP,
    LinkMeasurements,
    NamedQuantity,
    NodeMeasurements,
    add,
    add_at,
    is_nothing,
    is_number,
    named,
    named_of_node,
)
from netdfl.topology.files import Ends, ends_of

_IPERF_FIELDS, _IPERF_SOURCE, _IPERF_TARGET, _IPERF_RATE = (9, 14), 1, 3, 8
"""A line of `iperf -y C`: its possible numbers of fields (TCP, UDP), and the columns of source, target and rate."""
Rows = Sequence[Sequence[str]]


def read_table_file(file: str, *, values: str, delay_unit: str, rate_unit: str) -> MeasuredNetwork:
    """Read the measurements of each ordered pair of nodes from a CSV file.

    Nodes are written as numbers, or are numbered as they first appear. `values` is the quantity in the cells of a
    matrix: rtt, latency or rate. Raises ValueError with file and line.
    """
    reader = _TableReader(file, NamedQuantity(values), delay_unit, rate_unit)
    if ending_of(file) == ".json":
        found = matrix_rows(file) or [[""]]
        reader.names = found[0][1:]
        return reader.matrix(found)
    try:
        text = given_text(file)
    except OSError as exc:
        raise ValueError(f"can't read {file} as a CSV file: {exc}") from exc
    lines = [line for line in map(str.strip, text.splitlines()) if line and not line.lstrip().startswith("#")]
    if not lines:
        raise ValueError(f"{file} is empty")
    delimiter = max(",;\t", key=lines[0].count)
    split = csv.reader(lines, delimiter=delimiter if delimiter in lines[0] else " ", skipinitialspace=True)
    rows = [[cell.strip() for cell in row] for row in split]
    rows = [row[:-1] if row and not row[-1] and len(row) == len(rows[0]) + 1 else row for row in rows]
    ends = ends_of(rows[0]) or _named_ends(rows)
    if ends is not None and (not ends.alike or any(named(head) for head in rows[0])):  # a matrix may be of a, b, c
        return reader.pairs(rows, ends)
    if any(_is_node(head) for head in rows[0]) and any(_of_node(head) for head in rows[0]):
        return reader.nodes(rows)
    if len(rows[0]) in _IPERF_FIELDS and rows[0][_IPERF_SOURCE].count(".") == 3:
        return reader.iperf(rows)
    return reader.matrix(rows)


class _TableReader:
    """A reader of a table's rows that collects the measurements of links and nodes."""

    def __init__(self, file: str, values: NamedQuantity, delay_unit: str, rate_unit: str) -> None:
        self.file, self.values = file, values
        self.units = {"delay_unit": delay_unit, "rate_unit": rate_unit}
        self.found = MeasuredNetwork(0, directed=True)
        self.names: Sequence[str] = ()

    def pairs(self, rows: Rows, ends: Ends) -> MeasuredNetwork:
        """Read a table with one pair of nodes (columns `ends`) per line, and use the median of several lines of a pair.

        A round trip holds for both directions if only one is measured. If neither column is named as the source, all
        quantities hold for both directions.
        """
        source, target = ends.source, ends.target
        columns = {i: what for i, head in enumerate(rows[0]) if (what := named(head)) and i not in (source, target)}
        columns = _one_delay(columns)
        if not columns:
            raise ValueError(f"{self.file}: none of {', '.join(rows[0])} is a latency, an rtt, a rate or a loss")
        self.found.unknown = {h for i, h in enumerate(rows[0]) if i not in {source, target, *columns}}
        number = _numbers([row[i] for row in rows[1:] for i in (source, target) if i < len(row)])
        for line, row in enumerate(rows[1:], start=2):
            if max(source, target, *columns) >= len(row):
                raise ValueError(f"{self.file}:{line}: {len(row)} columns, expected {len(rows[0])}")
            for i, what in columns.items():
                self._say(line, number[row[source]], number[row[target]], what, row[i], rows[0][i])
        self.found.num_nodes = max(number.values(), default=-1) + 1
        self._mirror(ends.alike, any(what.what == RTT for what in columns.values()))
        return self.found

    def _mirror(self, alike: bool, round_trips: bool) -> None:
        """Copy measurements of a pair to its opposite direction, where that has none of the kind.

        Args:
            alike: whether neither column of nodes is named as the source; then latencies, rates and losses are copied.
            round_trips: whether the table has round-trip times; then latencies are copied in any case.
        """
        facts = self.found.facts
        for (src, dst), said in list(facts.items()):
            back = facts.get((dst, src), LinkMeasurements())
            added = LinkMeasurements(
                said.latency_s if (alike or round_trips) and not back.latency_s else [],
                said.rate_bps if alike and not back.rate_bps else [],
                said.loss if alike and not back.loss else [],
            )
            if added != LinkMeasurements():
                facts[dst, src] = LinkMeasurements(
                    back.latency_s + added.latency_s, back.rate_bps + added.rate_bps, back.loss + added.loss
                )
                self.found.read_as["one way as both"] += 1

    def nodes(self, rows: Rows) -> MeasuredNetwork:
        """Read a table with one row per node: its number in the column `node`, the rates of its uplink and downlink."""
        (node_at, *_) = (place for place, head in enumerate(rows[0]) if _is_node(head))
        columns = {place: what for place, head in enumerate(rows[0]) if (what := _of_node(head)) is not None}
        self.found.unknown = {head for place, head in enumerate(rows[0]) if place not in {node_at, *columns}}
        for line, row in enumerate(rows[1:], start=2):
            if len(row) != len(rows[0]) or not row[node_at].isdigit():
                raise ValueError(f"{self.file}:{line}: expected {', '.join(rows[0])}, the node as a number from 0 on")
            node = int(row[node_at])
            for place, what in columns.items():
                if is_nothing(row[place]):
                    continue
                try:
                    at = self.found.nodes.setdefault(node, NodeMeasurements())
                    add_at(at, what, row[place], **self.units)
                except ValueError as exc:
                    raise ValueError(f"{self.file}:{line}: {rows[0][place]}: {exc}") from exc
                self.found.read_as[f"{rows[0][place]} of nodes as {what.what}"] += 1
            self.found.num_nodes = max(self.found.num_nodes, node + 1)
        return self.found

    def iperf(self, rows: Rows) -> MeasuredNetwork:
        """Read the output of `iperf -y C`, with one measured rate from source to destination per line."""
        number = _numbers([row[i] for row in rows for i in (_IPERF_SOURCE, _IPERF_TARGET)])
        for line, row in enumerate(rows, start=1):
            ends = number[row[_IPERF_SOURCE]], number[row[_IPERF_TARGET]]
            self._say(line, *ends, NamedQuantity(RATE, "bit"), row[_IPERF_RATE], "bits per second")
        self.found.num_nodes = len(number)
        return self.found

    def matrix(self, rows: Rows) -> MeasuredNetwork:
        """Read a square matrix with one row per source, with or without names in its first row and column."""
        head = len(rows) > 1 and len(rows[1]) in (len(rows) - 1, len(rows)) and not _all_values(rows[0])
        head = head or _is_numbered(rows)
        body = rows[1:] if head else rows
        side = all(len(row) == len(body) + 1 for row in body)
        place = _places(self.file, rows[0], [row[0] for row in body]) if head and side else None
        body = [row[1:] if side else row for row in body]
        for line, row in enumerate(body, start=1 + head):
            if len(row) != len(body):
                what = f"{len(row)} values in a matrix of {len(body)} rows"
                remedy = "give a square matrix, or a header with source and destination"
                raise ValueError(f"{self.file}:{line}: {what}; {remedy}")
            for column, value in enumerate(row):
                dst = column if place is None else place[column]
                self._say(line, line - 1 - head, dst, self.values, value, "values")
        self.found.num_nodes = len(body)
        return self.found

    def _say(self, line: int, src: int, dst: int, what: NamedQuantity, value: str, name: str) -> None:
        if src == dst or is_nothing(value):
            return
        try:
            add(self.found.at(src, dst), what, value, **self.units)
        except ValueError as exc:
            place = f"{self.file}: {self.names[src]} to {self.names[dst]}" if self.names else f"{self.file}:{line}"
            raise ValueError(f"{place}: {exc}") from exc
        self.found.read_as[f"{name} as {what.what}"] += 1


def _is_node(head: str) -> bool:
    return head.strip().lower() == "node"


def _of_node(head: str) -> NamedQuantity | None:
    """Return the quantity of a column headed `head` if it is the rate of a node's uplink or downlink; else None."""
    what = named_of_node(head)
    return what if what is not None and what.what in (UP, DOWN) else None


def _is_numbered(rows: Rows) -> bool:
    """Whether rows and columns are headed 0, 1, 2 and so on, as pandas writes a matrix without names."""
    numbers = [str(number) for number in range(len(rows) - 1)]
    return len(rows) > 2 and rows[0] == ["", *numbers] and [row[0] for row in rows[1:]] == numbers


def _places(file: str, heads: Sequence[str], sides: Sequence[str]) -> list[int] | None:
    """Return, for each column of a matrix, the number of the row with the same name; None if no names are common.

    `heads` and `sides` are the names of columns and rows. Raises ValueError where only some names are common.
    """
    columns = heads[-len(sides) :]
    if len(set(sides)) < len(sides) or not set(columns) & set(sides):
        return None
    if unknown := next((name for name in columns if name not in sides), None):
        raise ValueError(f"{file}:1: column {unknown!r} has no row of that name; give rows and columns the same names")
    return [sides.index(name) for name in columns]


def _named_ends(rows: Rows) -> Ends | None:
    """Return the two columns of node names in a table that has a known quantity; None otherwise."""
    if len(rows) < 2 or not any(named(head) for head in rows[0]) or any(len(row) != len(rows[0]) for row in rows):
        return None
    names = [place for place in range(len(rows[0])) if not any(_all_values([row[place]]) for row in rows[1:])]
    names = [place for place in names if named(rows[0][place]) is None]
    return Ends(names[0], names[1], alike=True) if len(names) == 2 else None


def _one_delay(columns: dict[int, NamedQuantity]) -> dict[int, NamedQuantity]:
    """Return `columns` with at most one column of delays: a latency rather than a round trip, else the first one."""
    delays = sorted((what.what == RTT, i) for i, what in columns.items() if what.what in (LATENCY, RTT))
    return {i: what for i, what in columns.items() if what.what not in (LATENCY, RTT) or i == delays[0][1]}


def _numbers(names: Sequence[str]) -> dict[str, int]:
    """Return the node number of each name.

    Numbers that cover 0 to n - 1 stand for themselves. Other numbers are counted in order of size, other names in order
    of appearance.
    """
    known = list(dict.fromkeys(names))
    if all(name.isdigit() for name in known):
        if {int(name) for name in known} == set(range(len(known))):
            return {name: int(name) for name in known}
        known.sort(key=int)
    return {name: index for index, name in enumerate(known)}


def _all_values(row: Sequence[str]) -> bool:
    return all(is_nothing(cell) or is_number(cell) for cell in row)
