"""The output of `netdfl explain` on a terminal, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table
from rich.text import Text

from netdfl.core.bounds import MemoryBounds
from netdfl.core.units import format_bytes, format_time
from netdfl.links.rules.figures import comes_to
from netdfl.links.schedule.changes import link_changes
from netdfl.links.schedule.events import CompiledEvent, name_change, name_place
from netdfl.scenario.explain.core_links import SECOND, CoreLinkFacts
from netdfl.scenario.explain.explain import (
    CompressionFacts,
    Explanation,
    GraphFacts,
    LabelTable,
    NumberRange,
    TaskFacts,
    WeightFacts,
)
from netdfl.scenario.model.fields import written_time
from netdfl.scenario.model.network import Delivery, Wait
from netdfl.scenario.model.world import MachinesOptions, WorldOptions
from netdfl.topology.graph import count_words, redrawn_words

_SHADES = " ░▒▓█"
_MOST_ROWS = 40
_MOST_NAMED = 4
_EXACT = 1e-9
"""The factor of disagreement per round below which nodes are said to agree exactly, up to rounding."""


def show(found: Explanation, console: Console) -> None:
    """Print an explanation."""
    console.print(_overview(found))
    if found.links:
        title, columns = "rules of links, in the long run", ("of", "links", "what", "rule", "comes to", "by")
        console.print(_table(title, columns, list(map(_link_row, found.links))))
    if found.core_links:
        columns = ("core link", "rate", "latency", "loss", "links that cross it", "a round takes at least")
        console.print(_table("core links, the longest first", columns, list(map(_core_row, found.core_links))))
    if found.data is not None:
        console.print(_labels(found.data))
    if found.events:
        rows = [cells for _, *cells in sorted(_event_rows(found.events), key=lambda row: row[0])]
        console.print(_table("scripted events, in order", ("when", "what", "on", "to", "entry"), rows))


def _table(title: str, columns: Sequence[str], rows: Sequence[Iterable[str | Text]]) -> Table:
    """Return a table of the rows, of many rows only the first `_MOST_ROWS`."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right" if column in ("client", "samples") else "left")
    for row in rows[:_MOST_ROWS]:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    if len(rows) > _MOST_ROWS:
        table.add_row("...", f"{len(rows) - _MOST_ROWS} more")
    return table


def _overview(found: Explanation) -> Table:
    title = f"{found.scenario.name}, seed {found.scenario.seed}"
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    for name, value in _rows(found):
        table.add_row(name, value)
    return table


def _rows(found: Explanation) -> list[tuple[str, str]]:
    scenario, traffic = found.scenario, found.traffic
    who = f"{scenario.nodes} clients and a server" if scenario.has_server else f"{scenario.nodes} nodes"
    algorithm = scenario.algorithm
    down = "" if traffic.broadcast_bytes is None else f" up, {format_bytes(traffic.broadcast_bytes)} down"
    return [
        ("fleet", f"{who}, {scenario.rounds} rounds, world {scenario.world.kind}"),
        ("algorithm", f"{algorithm.kind} ({algorithm.traits.kind}) {_params(algorithm.params)}".rstrip()),
        ("task", _task(found.task)),
        ("graph", _graph(found.graph, scenario.has_server)),
        ("degrees", f"out {_spread(found.graph.out_degree)}, in {_spread(found.graph.in_degree)}"),
        ("weights", _weights(found.weights)),
        *(_compression(found.compression) if found.compression else ()),
        ("wait", _wait(scenario.wait)),
        ("delivery", _delivery(scenario.delivery)),
        ("a message", format_bytes(traffic.message_bytes) + down + _where(scenario.world, traffic.message_bytes)),
        ("a round", f"{traffic.messages_per_round:g} messages with models, {format_bytes(traffic.bytes_per_round)}"),
        ("in all", f"{traffic.messages_in_all:,.10g} messages with models, {format_bytes(traffic.bytes_in_all)}"),
        *([("not counted", f"{'; '.join(traffic.beside)}: a run counts these, too")] if traffic.beside else []),
        *([] if scenario.world.kind == "simulated" else [("kept of others", _bounds(found.bounds))]),
        *([] if scenario.record.sampling.is_all else [("the record", scenario.record.sampling.sentence)]),
    ]


def _wait(wait: Wait) -> str:
    need = f"a quorum of {wait.need}" if isinstance(wait.need, int) else wait.need
    return f"for {need}, deadline {written_time(wait.deadline)}"


def _delivery(delivery: Delivery) -> str:
    kind, *others = delivery.model_dump(mode="json").items()
    return ", ".join([kind[1], *(f"{name} {value}" for name, value in others)])


def _bounds(bounds: MemoryBounds) -> str:
    """Return a real node's memory limits for data that others send, as text."""
    early = f"{bounds.window} messages of a peer before they are awaited, up to {format_bytes(bounds.peer_bytes)}"
    calls = f"{bounds.streams:,} calls over a connection, {bounds.connections:,} connections at a port"
    return f"{early}, {format_bytes(bounds.mailbox_bytes)} of all; {calls}"


def _where(world: WorldOptions, nbytes: float) -> str:
    least = getattr(world, "shared_from", None)
    if least is None or nbytes < least:
        return ""
    between = " between nodes of a machine" if isinstance(world, MachinesOptions) else ""
    return f", in shared memory{between} where there is room"


def _compression(found: CompressionFacts) -> Iterator[tuple[str, str]]:
    how = f"{found.kind} {_params(found.params)}"
    yield "compression", f"{how}, scheme {found.scheme}, gamma {found.gamma}"
    kept = f"{found.vectors_kept} references or memories of the model's size, {format_bytes(found.bytes_kept)}"
    yield "a node keeps", f"up to {kept}" if found.counts_all else f"at least {kept} (the first 256 graphs)"


def _params(params: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {_param(value)}" for name, value in params.items() if value is not None)


def _param(value: object) -> str:
    """Format a parameter of a component; for one with keys inside, its kind and what differs from the defaults."""
    if not is_dataclass(value) or isinstance(value, type):
        return str(value)
    (_, kind), *others = asdict(value).items()
    usual = {field.name: field.default for field in fields(value)}
    return " ".join([str(kind), *(f"{name} {each}" for name, each in others if each != usual[name])])


def _task(task: TaskFacts) -> str:
    size = f"{task.parameters:,} numbers of {task.dtype}"
    if task.kind != "train":
        return f"{task.kind}, {size}"
    return f"{task.model} on {task.dataset}, shared out by {task.partition}, {size}"


def _graph(graph: GraphFacts, server: bool) -> str:
    counted = count_words(graph.nodes, graph.links, directed=graph.directed)
    redrawn = redrawn_words(graph.redraw_every, chosen=graph.chosen_anew, server=server)
    of_first = "" if redrawn == "static" else " in round 0"
    known = "" if graph.receivers_know else ", receivers do not know who will send"
    return f"{graph.kind}, {counted}{of_first}, {redrawn}{known}"


def _spread(spread: NumberRange) -> str:
    low, high = spread.min, spread.max
    return f"{low:g}" if low == high else f"{low:g} to {high:g} (mean {spread.mean:g})"


def _weights(weights: WeightFacts) -> str:
    text = f"{weights.kind}, {weights.stochastic}"
    if weights.psi is None:
        return text
    symmetric = ", symmetric" if weights.symmetric else ""
    numbers = f"spectral gap {weights.spectral_gap:.4g}, psi {weights.psi:.4g}"
    return f"{text} stochastic{symmetric}, {numbers}{_over_several(weights.psi_per_round)}"


def _over_several(psi_per_round: float | None) -> str:
    if psi_per_round is None:
        return ""
    if psi_per_round < _EXACT:
        return " in round 0, and an exact average within a few rounds"
    return f" in round 0, {psi_per_round:.4g} a round over a few rounds"


def _link_row(rule: Mapping[str, Any]) -> tuple[str, ...]:
    by = "links" if rule["event"] is None else f"events[{rule['event']}]"
    links = "" if rule["links"] is None else str(rule["links"])
    return rule["of"], links, rule["key"], rule["rule"], comes_to(rule), by


def _core_row(link: CoreLinkFacts) -> tuple[str, ...]:
    rate = "unlimited" if link.rate_bps is None else f"{link.rate_bps / 1e6:g} Mbit/s"
    named = ", ".join(f"{src}->{dst}" for src, dst in link.crossed_by[:_MOST_NAMED])
    left = f" and {link.links - _MOST_NAMED} more" if link.links > _MOST_NAMED else ""
    who = f"{link.links}: {named}{left}" if link.links else "none"
    takes = "" if link.seconds_a_round is None else f"{link.seconds_a_round:.3g} s"
    return link.name, rate, format_time(round(link.latency_s * SECOND)), f"{link.loss:g}", who, takes


def _labels(data: LabelTable) -> Table:
    largest = max(max(row) for row in data.counts)
    cells = (_shades(row, largest) if len(row) > 20 else _numbers(row, largest) for row in data.counts)
    rows = [(str(client), cell, str(sum(data.counts[client]))) for client, cell in enumerate(cells)]
    title = f"training samples of {data.dataset} by client and class"
    return _table(title, ("client", f"classes 0 to {data.classes - 1}", "samples"), rows)


def _numbers(row: Sequence[int], largest: int) -> Text:
    text = Text()
    for count in row:
        strength = 60 + int(195 * count / largest) if largest else 60
        text.append(f"{count:>5}" if count else "    .", style=f"rgb({strength // 3},{strength},{strength // 2})")
    return text


def _shades(row: Sequence[int], largest: int) -> Text:
    return Text("".join(_SHADES[-(-count * (len(_SHADES) - 1) // largest)] if largest else " " for count in row))


_EventRow: TypeAlias = tuple[tuple[bool, int, int], str, str, str, str, str]


def _event_rows(events: Sequence[CompiledEvent]) -> Iterator[_EventRow]:
    """Yield a sort key and a table row for each event: one for a node event, one for a link change and its end.

    An entry that changes links repeatedly is one row.
    """
    for change in link_changes(events):
        often = f", {change.times:,} times" if change.times > 1 else ""
        order = (change.by_round, change.begin, change.source)
        yield order, change.when + often, change.entry, change.where, change.what, f"events[{change.source}]"
    for event in events:
        if event.action not in ("set", "unset"):
            order = (*event.order[:2], event.source)
            place, change_to = name_place((), event.nodes), name_change(event.parameters)
            yield order, _when(event), event.action, place, change_to, f"events[{event.source}]"


def _when(event: CompiledEvent) -> str:
    if event.at_round is None:
        return format_time(event.at_ns or 0)
    return f"round {event.at_round}" + (f" + {format_time(event.after_ns)}" if event.after_ns else "")
