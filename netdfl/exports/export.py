"""`netdfl export`: tables, traces and graphs to a file or to standard output, and runs to trackers."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from netdfl.core.errors import InputError
from netdfl.core.files import writing
from netdfl.exports.traces import json_lines, packets
from netdfl.record.database import TABLES, quoted
from netdfl.record.messages import count_by_link
from netdfl.record.run import Run
from netdfl.scenario.model.choices import nearest

_OPTIONS = {
    "csv": "FORMAT csv, HEADER true",
    "jsonl": "FORMAT json, ARRAY false",
    "parquet": "FORMAT parquet",
}
ORDER = {
    "messages": "sent_s, src, dst, round, step, attempt",
    "metrics": "at_s, node NULLS FIRST, round, name",
    "events": "at_s, node NULLS FIRST, round, kind",
    "waits": "until_s, node, round, step",
    "resources": "at_s, node NULLS FIRST, process",
}
STDOUT = "-"
FORMATS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(TABLES, tuple(_OPTIONS)),
    "trace": ("pftrace", "json"),
    "graph": ("graphml",),
    "graphml": ("graphml",),
}
"""The formats of each export to a file; the first is the default."""
KNOWN = [*TABLES, "trace", "graph", "tensorboard", "mlflow", "model"]


def export(run: Run, what: str, format: str | None = None, out: str | None = None) -> str:
    """Write `what` of a run, as `format`, to the file `out`; return its path, or "" for standard output (`-`).

    A trace is `pftrace` (for Perfetto) or `json` (for chrome://tracing as well), a graph `graphml`. For `tensorboard`,
    `out` is a folder, for `mlflow` a tracking URI or a folder.

    Raises:
        InputError: there is nothing of that name or format, or `out` can't be written.
    """
    if what in ("tensorboard", "mlflow"):
        return _track(run, what, format, out)
    if what not in FORMATS:
        raise InputError(f"a run has no {what!r}: {nearest(what, KNOWN)}")
    formats = FORMATS[what]
    chosen = format or formats[0]
    if chosen not in formats:
        raise InputError(f"{chosen!r} is no format of {what}; choose one of {', '.join(formats)}")
    if out == STDOUT:
        _print(run, what, chosen)
        return ""
    name = f"{run.path.name}-{what}" if what in TABLES else run.path.name
    target = Path(out or f"{name}.{chosen}")
    if what in TABLES:
        return str(export_table(run, what, chosen, target))
    with writing(target), target.open("wb") as file:
        file.writelines(_pieces(run, what, chosen))
    return str(target)


def _pieces(run: Run, what: str, format: str) -> Iterable[bytes]:
    from netdfl.exports.course import course

    if what in ("graph", "graphml"):
        return [graphml(run).encode()]
    with run.held():
        found, nodes = list(course(run)), run.num_nodes
    if format == "json":
        return (line.encode() for line in json_lines(run.path.name, nodes, found))
    return packets(run.path.name, nodes, found)


def _print(run: Run, what: str, format: str) -> None:
    """Write the export `what` of a run, in the given format, to standard output."""
    if what in TABLES:
        with tempfile.TemporaryDirectory(prefix="netdfl-export-") as folder:
            file = export_table(run, what, format, Path(folder) / f"{what}.{format}")
            sys.stdout.buffer.write(file.read_bytes())
    else:
        sys.stdout.buffer.writelines(_pieces(run, what, format))
    sys.stdout.buffer.flush()


def _track(run: Run, what: str, format: str | None, out: str | None) -> str:
    if format is not None:
        raise InputError(f"{what} has no formats; leave --format out")
    if out == STDOUT:
        raise InputError(f"{what} can't be written to standard output; name a folder")
    from netdfl.exports.trackers import FOLDER, write_mlflow, write_tensorboard

    return write_mlflow(run, out) if what == "mlflow" else str(write_tensorboard(run, Path(out or run.path / FOLDER)))


def export_table(run: Run, table: str, format: str, out: Path | str) -> Path:
    """Write one table, in order of time, to the file `out`, and return its path.

    Raises:
        InputError: `out` can't be written.
    """
    import duckdb

    target = Path(out).absolute()
    options = f"{_OPTIONS[format]}, USE_TMP_FILE false"
    try:
        run.copy(f"COPY (FROM {table} ORDER BY {ORDER[table]}) TO {quoted(str(target))} ({options})", target)
    except duckdb.Error as exc:
        raise InputError(f"{out} can't be written: {str(exc).splitlines()[0]}") from exc
    return Path(out)


def graphml(run: Run) -> str:
    """Return the graph of round 0, and every link that carried a message, as GraphML.

    Raises InputError if there is no graph.
    """
    import networkx as nx

    written = run.graph
    if written is None:
        raise InputError(f"{run.path} has no graph.json, so there is no graph to export")
    graph: nx.DiGraph[int] = nx.DiGraph(name=run.path.name)
    server = written.get("server")
    graph.add_nodes_from(range(written["num_nodes"]), role="client")
    if server is not None:
        graph.nodes[server]["role"] = "server"
    graph.add_edges_from(((src, dst) for src, dst in written["edges"] if src != dst), planned=True)
    ended = run.rows("SELECT node, count(*) FROM metrics WHERE name = 'round_s' AND node >= 0 GROUP BY node")
    for node, rounds in ended:
        graph.nodes[node]["rounds"] = rounds
    for link in count_by_link(run):
        carried = {"messages": link.counts.sent, "delivered": link.counts.delivered, "lost": link.counts.lost}
        graph.add_edge(*link.edge, **carried, bytes=link.nbytes)
        if link.delay_s is not None:
            graph.edges[link.edge]["delay_s"] = float(link.delay_s)
    for _, _, known in graph.edges(data=True):
        known.setdefault("planned", False)
    return "\n".join(nx.generate_graphml(graph)) + "\n"
