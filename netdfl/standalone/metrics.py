"""The metrics of one node that was started by hand (`netdfl node`), which Prometheus reads from the node's machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from threading import Lock, Thread
from typing import Self

from pydantic_core import from_json

from netdfl.core.clock import NS_PER_S
from netdfl.core.errors import InputError
from netdfl.exports.metrics import FiguresCollector, MetricValues
from netdfl.host.living import LivingNode
from netdfl.record.resources import process_name, usage_here
from netdfl.record.store import STORE


@contextmanager
def offered(where: tuple[str, int] | None, figures: Callable[[], MetricValues]) -> Iterator[None]:
    """Answer requests of Prometheus at `where`, a host and a port, in a thread, as long as the context lasts.

    `figures` returns the metrics to answer with. Do nothing if `where` is None. Raises InputError if this machine can't
    listen there.
    """
    if where is None:
        yield
        return
    from prometheus_client import CollectorRegistry, make_wsgi_app

    from netdfl.standalone.metrics_server import BoundedServer

    registry, one_at_a_time = CollectorRegistry(), Lock()

    def asked() -> list[MetricValues]:
        with one_at_a_time:  # requests have threads of their own, and the counter of waits continues where it was
            return [figures()]

    registry.register(FiguresCollector(asked))
    try:
        server = BoundedServer(where[0].strip("[]"), where[1])
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(f"metrics can't be offered at {where[0]}:{where[1]}: {why}; name another --metrics") from error
    server.set_app(make_wsgi_app(registry))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class WaitCounter:
    """A counter of a node's waits for messages and of their seconds, by how they ended, from the node's growing record.

    Each call of `counts` reads only the rows that were added since the last one.
    """

    def __init__(self, file: Path) -> None:
        """Count the rows of `file`, the node's table of waits, which may not exist yet."""
        self._file, self._read = file, 0
        self._counts: dict[str, tuple[int, float]] = {}

    def counts(self) -> Mapping[str, tuple[int, float]]:
        """Return the number of waits and their total seconds up to now, by how they ended (such as `deadline`)."""
        with suppress(FileNotFoundError), self._file.open("rb") as file:
            file.seek(self._read)
            text, _, torn = file.read().rpartition(b"\n")
            self._read = file.tell() - len(torn)
            for line in text.splitlines():
                row = from_json(line)
                number, seconds = self._counts.get(row["ended"], (0, 0.0))
                self._counts[row["ended"]] = number + 1, seconds + row["until_s"] - row["since_s"]
        return self._counts


class NodeFigures:
    """A function that returns a running node's metrics for Prometheus, from the node's present state and record."""

    def __init__(self, node: LivingNode, waits: WaitCounter) -> None:
        """Read the metrics of `node`, and the counts of its waits from `waits`."""
        self._node, self._waits = node, waits

    @classmethod
    def of(cls, node: LivingNode, directory: Path) -> Self:
        """Return the function that reads the metrics of `node`, which writes its record below `directory`."""
        return cls(node, WaitCounter(directory / STORE / f"waits-{node.id:03d}.jsonl"))

    def __call__(self) -> MetricValues:
        """Return the node's present metrics."""
        host, scenario = self._node.host, self._node.blueprint.scenario
        ledger, wait, id = host.parts.ledger, host.node.waits.current, str(self._node.id)
        now_ns = self._node.clock.now_ns()
        return MetricValues(
            labels={"run": scenario.name, "node": id},
            rounds=scenario.rounds,
            rounds_done=scenario.rounds if host.finished else host.round,
            node_rounds={id: host.round},
            phases={"finished" if host.finished else "running" if host.started.is_set() else "starting": 1},
            messages=asdict(ledger.counts),
            bytes_sent=ledger.bytes_sent,
            waits=dict(self._waits.counts()),
            waiting={} if wait is None else {id: max(0, now_ns - wait.since_ns) / NS_PER_S},
            processes={process_name([self._node.id]): usage_here()},
        )
