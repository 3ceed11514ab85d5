"""The progress, traffic and waits of unfinished runs, as metrics in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from pydantic import Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from netdfl.core.fates import MessageCounts
from netdfl.record.forms import OPEN, Count, NodeField, Seconds, read_form
from netdfl.record.resources import Usage
from netdfl.record.run import open_run

if TYPE_CHECKING:
    from prometheus_client.core import Metric

MOST_TEXT = 200
Text: TypeAlias = Annotated[str, Field(strict=True, max_length=MOST_TEXT)]


@with_config(OPEN)
class _NodeForm(TypedDict):
    node: NodeField
    round: Count
    phase: Text


@with_config(OPEN)
class _WaitingForm(TypedDict):
    node: NodeField
    since_s: Seconds


@with_config(OPEN)
class _StatusForm(TypedDict, total=False):
    """The JSON keys of `fleet.json`, as far as metrics need them."""

    rounds: Count
    rounds_done: Count
    bytes_sent: Count
    elapsed_s: Seconds
    messages: dict[Text, Count]
    nodes: list[_NodeForm]
    waiting: list[_WaitingForm]


_STATUS: TypeAdapter[_StatusForm] = TypeAdapter(_StatusForm)


@dataclass(frozen=True, kw_only=True)
class MetricValues:
    """The values of all Prometheus metrics of one run, or of one node of a run.

    Attributes:
        labels: the labels that name the run or the node.
        rounds: the number of rounds of the scenario.
        rounds_done: the number of finished rounds.
        node_rounds: the present round of each node.
        phases: the number of nodes in each phase.
        messages: the number of messages by fate, as in `MessageCounts`.
        bytes_sent: the bytes of all messages sent.
        waits: the number and the total seconds of ended waits, by the way in which they ended.
        waiting: the seconds that each waiting node has waited so far.
        processes: the resources of each process.
    """

    labels: Mapping[str, str]
    rounds: int = 0
    rounds_done: int = 0
    node_rounds: Mapping[str, int] = field(default_factory=dict)
    phases: Mapping[str, int] = field(default_factory=dict)
    messages: Mapping[str, int] = field(default_factory=dict)
    bytes_sent: int = 0
    waits: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    waiting: Mapping[str, float] = field(default_factory=dict)
    processes: Mapping[str, Usage] = field(default_factory=dict)


def read_figures(path: Path, place: str) -> MetricValues:
    """Read the values of the metrics of the run at `path`; they get the label `run`, whose value is `place`.

    Raises InputError if its files are damaged.
    """
    status = read_form(path / "fleet.json", _STATUS) or {}
    run, phases = open_run(path), [node["phase"] for node in status.get("nodes", [])]
    waits = run.rows(
        "SELECT ended, count(*), sum(until_s - since_s) FROM waits WHERE until_s >= since_s GROUP BY ended"
    )
    processes = run.rows(
        "SELECT process, sum(cpu_s), arg_max(memory_bytes, at_s), arg_max(gpu_bytes, at_s) FROM (SELECT process, pid, "
        "max(at_s) AS at_s, max(cpu_s) AS cpu_s, arg_max(memory_bytes, at_s) AS memory_bytes, "
        "arg_max(gpu_bytes, at_s) AS gpu_bytes FROM resources GROUP BY process, pid) GROUP BY process ORDER BY process"
    )
    now_s = status.get("elapsed_s", 0.0)
    return MetricValues(
        labels={"run": place},
        rounds=status.get("rounds", 0),
        rounds_done=status.get("rounds_done", 0),
        node_rounds={str(node["node"]): node["round"] for node in status.get("nodes", [])},
        phases={phase: phases.count(phase) for phase in sorted(set(phases))},
        messages=status.get("messages", {}),
        bytes_sent=status.get("bytes_sent", 0),
        waits={ended: (number, seconds) for ended, number, seconds in sorted(waits)},
        waiting={str(each["node"]): max(0.0, now_s - each["since_s"]) for each in status.get("waiting", [])},
        processes={name: Usage(cpu_s, memory, gpu) for name, cpu_s, memory, gpu in processes},
    )


Rows: TypeAlias = Callable[[MetricValues], Iterable[tuple[Sequence[str], float]]]
"""A function that returns the values of one metric, each with the values of the metric's own labels."""


@dataclass(frozen=True)
class _Kind:
    """One metric for Prometheus, which has a value for each run, and for each value of its own labels.

    Attributes:
        counter: whether the metric is a counter; else it is a gauge.
        name: the name of the metric.
        words: the description of the metric.
        labels: the labels that the metric has besides those of the run.
        rows: returns the values of the metric.
    """

    counter: bool
    name: str
    words: str
    labels: Sequence[str]
    rows: Rows


def _processes(value: Callable[[Usage], float | None]) -> Rows:
    def rows(of: MetricValues) -> Iterator[tuple[Sequence[str], float]]:
        for name, usage in of.processes.items():
            if (found := value(usage)) is not None:
                yield [name], found

    return rows


def _fates(of: MetricValues) -> Iterator[tuple[Sequence[str], float]]:
    names = [each.name for each in fields(MessageCounts) if each.name not in ("sent", "unfinished")]
    yield from (([name], of.messages.get(name, 0)) for name in names)


KINDS: Sequence[_Kind] = (
    _Kind(False, "netdfl_rounds", "Rounds that the scenario asks for.", (), lambda of: [((), of.rounds)]),
    _Kind(False, "netdfl_rounds_done", "Rounds that all nodes have done.", (), lambda of: [((), of.rounds_done)]),
    _Kind(
        False,
        "netdfl_node_round",
        "The last round that a node began.",
        ("node",),
        lambda of: [([node], round) for node, round in of.node_rounds.items()],
    ),
    _Kind(
        False,
        "netdfl_nodes",
        "Nodes by state.",
        ("state",),
        lambda of: [([phase], number) for phase, number in of.phases.items()],
    ),
    _Kind(
        True,
        "netdfl_messages_sent",
        "Messages handed to the network.",
        (),
        lambda of: [((), of.messages.get("sent", 0))],
    ),
    _Kind(True, "netdfl_messages", "Messages by what became of them.", ("fate",), _fates),
    _Kind(
        False,
        "netdfl_messages_under_way",
        "Messages whose fate is open.",
        (),
        lambda of: [((), of.messages.get("unfinished", 0))],
    ),
    _Kind(True, "netdfl_sent_bytes", "Bytes of all messages that were sent.", (), lambda of: [((), of.bytes_sent)]),
    _Kind(
        True,
        "netdfl_waits",
        "Waits that took time, by how they ended.",
        ("ended",),
        lambda of: [([ended], number) for ended, (number, _) in of.waits.items()],
    ),
    _Kind(
        True,
        "netdfl_wait_seconds",
        "Seconds of all waits, by how they ended.",
        ("ended",),
        lambda of: [([ended], seconds) for ended, (_, seconds) in of.waits.items()],
    ),
    _Kind(
        False,
        "netdfl_waiting_seconds",
        "Seconds that a node has waited by now.",
        ("node",),
        lambda of: [([node], seconds) for node, seconds in of.waiting.items()],
    ),
    _Kind(
        True,
        "netdfl_process_cpu_seconds",
        "CPU time of a process.",
        ("process",),
        _processes(lambda usage: usage.cpu_s),
    ),
    _Kind(
        False,
        "netdfl_process_memory_bytes",
        "Memory of a process in RAM.",
        ("process",),
        _processes(lambda usage: usage.memory_bytes),
    ),
    _Kind(
        False,
        "netdfl_process_gpu_bytes",
        "GPU memory that PyTorch holds for a process.",
        ("process",),
        _processes(lambda usage: usage.gpu_bytes),
    ),
)
"""All metrics; the names of counters end with `_total` in the text."""


def families(found: Sequence[MetricValues]) -> Iterator[Metric]:
    """Yield the metrics of runs for Prometheus' client library; all of `found` must have the same names of labels."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    names = list(found[0].labels) if found else ["run"]
    for kind in KINDS:
        own = [label for label in kind.labels if label not in names]
        make = CounterMetricFamily if kind.counter else GaugeMetricFamily
        family = make(kind.name, kind.words, labels=[*names, *own])
        for each in found:
            for values, number in kind.rows(each):
                more = values if own == list(kind.labels) else values[1:]
                family.add_metric([*each.labels.values(), *more], number)
        yield family


class FiguresCollector:
    """A collector of Prometheus' client library, which asks for the metrics' values at each scrape."""

    def __init__(self, figures: Callable[[], Sequence[MetricValues]]) -> None:
        """Collect at each scrape the metrics' values that `figures` returns."""
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics with their present values."""
        yield from families(self._figures())

    def describe(self) -> Iterator[Metric]:
        """Yield nothing, so that no values are asked for when the collector is registered."""
        yield from ()


def metrics_text(found: Sequence[MetricValues]) -> bytes:
    """Return the values of runs' metrics as text that Prometheus reads."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(FiguresCollector(lambda: found))
    return bytes(generate_latest(registry))
