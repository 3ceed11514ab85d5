"""What CSV files of measurements say of links: square matrices, tables with a pair a line, iperf's own lines."""

from __future__ import annotations

import csv
from collections.abc import Sequence

from netdfl.core.given_files import given_text
from netdfl.scenario.measured.graph_file import Understood
from netdfl.scenario.measured.said import LATENCY, RATE, RTT, Named, add, is_nothing, named

_SOURCES = ("source", "src", "from", "client", "node1", "origin", "sourceaddress")
_TARGETS = ("destination", "dst", "dest", "to", "server", "node2", "target", "destinationaddress")
_IPERF_FIELDS, _IPERF_SOURCE, _IPERF_TARGET, _IPERF_RATE = (9, 14), 1, 3, 8
"""`iperf -y C`: time, source, port, destination, port, id, interval, bytes, bits per second (and more for UDP)."""
Rows = Sequence[Sequence[str]]


def read_table_file(file: str, *, values: str, delay_unit: str, rate_unit: str) -> Understood:
    """What a CSV file says of each pair of nodes, each way. Nodes have numbers, or are counted as they first appear.

    `values` says what the cells of a matrix are: rtt, latency or rate. Raises ValueError with file and line.
    """
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
    reader = _Reader(file, Named(values), delay_unit, rate_unit)
    heads = [name.lower().replace("_", "").replace(" ", "") for name in rows[0]]
    ends = [next((i for i, head in enumerate(heads) if head in names), None) for names in (_SOURCES, _TARGETS)]
    if ends[0] is not None and ends[1] is not None:
        return reader.pairs(rows, ends[0], ends[1])
    if len(rows[0]) in _IPERF_FIELDS and rows[0][_IPERF_SOURCE].count(".") == 3:
        return reader.iperf(rows)
    return reader.matrix(rows)


class _Reader:
    """Reads the rows of one file into what is understood of it."""

    def __init__(self, file: str, values: Named, delay_unit: str, rate_unit: str) -> None:
        self.file, self.values = file, values
        self.units = {"delay_unit": delay_unit, "rate_unit": rate_unit}
        self.found = Understood(0, directed=True)

    def pairs(self, rows: Rows, source: int, target: int) -> Understood:
        """A table with a pair a line, below a header. Of several lines of one pair the median counts."""
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
        return self.found

    def iperf(self, rows: Rows) -> Understood:
        """What `iperf -y C` prints, a line a measurement: how fast bytes went from the source to the destination."""
        number = _numbers([row[i] for row in rows for i in (_IPERF_SOURCE, _IPERF_TARGET)])
        for line, row in enumerate(rows, start=1):
            ends = number[row[_IPERF_SOURCE]], number[row[_IPERF_TARGET]]
            self._say(line, *ends, Named(RATE, "bit"), row[_IPERF_RATE], "bits per second")
        self.found.num_nodes = len(number)
        return self.found

    def matrix(self, rows: Rows) -> Understood:
        """A square matrix, row by source; with or without names in its first row and column."""
        head = len(rows) > 1 and len(rows[1]) in (len(rows) - 1, len(rows)) and not _all_values(rows[0])
        body = rows[1:] if head else rows
        side = all(len(row) == len(body) + 1 for row in body)
        body = [row[1:] if side else row for row in body]
        for line, row in enumerate(body, start=1 + head):
            if len(row) != len(body):
                what = f"{len(row)} values in a matrix of {len(body)} rows"
                remedy = "give a square matrix, or a header with source and destination"
                raise ValueError(f"{self.file}:{line}: {what}; {remedy}")
            for dst, value in enumerate(row):
                self._say(line, line - 1 - head, dst, self.values, value, "values")
        self.found.num_nodes = len(body)
        return self.found

    def _say(self, line: int, src: int, dst: int, what: Named, value: str, name: str) -> None:
        if src == dst or is_nothing(value):
            return
        try:
            add(self.found.at(src, dst), what, value, **self.units)
        except ValueError as exc:
            raise ValueError(f"{self.file}:{line}: {exc}") from exc
        self.found.read_as[f"{name} as {what.what}"] += 1


def _one_delay(columns: dict[int, Named]) -> dict[int, Named]:
    """The columns without a second one of the delay: a latency goes before a round trip, the first before others."""
    delays = sorted((what.what == RTT, i) for i, what in columns.items() if what.what in (LATENCY, RTT))
    return {i: what for i, what in columns.items() if what.what not in (LATENCY, RTT) or i == delays[0][1]}


def _numbers(names: Sequence[str]) -> dict[str, int]:
    """Each name's node: its own number where all are 0 to n - 1, else counted as they appear, or by size if numbers."""
    known = list(dict.fromkeys(names))
    if all(name.isdigit() for name in known):
        if {int(name) for name in known} == set(range(len(known))):
            return {name: int(name) for name in known}
        known.sort(key=int)
    return {name: index for index, name in enumerate(known)}


def _all_values(row: Sequence[str]) -> bool:
    return all(is_nothing(cell) or cell.replace(".", "", 1).replace("e", "", 1).isdigit() for cell in row)
