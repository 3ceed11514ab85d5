"""`netdfl explain` on a terminal: what `explain` found, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table
from rich.text import Text

from netdfl.core.graph_words import count_words, redrawn_words
from netdfl.core.units import format_bytes, format_time
from netdfl.links.rules.figures import say
from netdfl.links.schedule.changes import link_changes
from netdfl.links.schedule.events import CompiledEvent, from_json
from netdfl.links.schedule.places import name_change, name_place

_SHADES = " ░▒▓█"
_MOST_ROWS = 40


def show(found: Mapping[str, Any], console: Console) -> None:
    """Print everything that `explain` returned."""
    console.print(_overview(found))
    if found["links"]:
        console.print(_links(found["links"]))
    if found["data"] is not None:
        console.print(_labels(found["data"]))
    if found["events"]:
        console.print(_events(found["events"]))


def _overview(found: Mapping[str, Any]) -> Table:
    table = Table(title=f"{found['name']}, seed {found['seed']}", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    for name, value in _rows(found):
        table.add_row(name, value)
    return table


def _rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    graph, weights, traffic, task = found["graph"], found["weights"], found["traffic"], found["task"]
    who = f"{found['nodes']} clients and a server" if found["server"] else f"{found['nodes']} nodes"
    algorithm = found["algorithm"]
    return [
        ("fleet", f"{who}, {found['rounds']} rounds, world {found['world']}"),
        ("algorithm", f"{algorithm['name']} ({algorithm['family']}) {_params(algorithm['params'])}".rstrip()),
        ("task", _task(task)),
        ("graph", _graph(graph, found["server"])),
        ("degrees", f"out {_spread(graph['out_degree'])}, in {_spread(graph['in_degree'])}"),
        ("weights", _weights(weights)),
        *_compression(found["compression"]),
        ("a message", format_bytes(traffic["message_bytes"])),
        ("a round", f"{traffic['messages_per_round']:g} messages, {format_bytes(traffic['bytes_per_round'])}"),
        ("in all", format_bytes(traffic["bytes_in_all"])),
    ]


def _compression(found: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if found is None:
        return []
    kept = f"{found['vectors_kept']} references or memories of the model's size, {format_bytes(found['bytes_kept'])}"
    how = f"{found['kind']} {_params(found['params'])}"
    return [
        ("compression", f"{how}, scheme {found['scheme']}, gamma {found['gamma']}"),
        ("a node keeps", f"up to {kept}" if found["counts_all"] else f"at least {kept} (the first 256 graphs)"),
    ]


def _params(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in params.items() if value is not None)


def _task(task: Mapping[str, Any]) -> str:
    size = f"{task['parameters']:,} numbers of {task['dtype']}"
    if task["kind"] != "train":
        return f"{task['kind']}, {size}"
    return f"{task['model']} on {task['dataset']}, shared out by {task['partition']}, {size}"


def _graph(graph: Mapping[str, Any], server: bool) -> str:
    counted = count_words(graph["nodes"], graph["links"], directed=graph["directed"])
    redrawn = redrawn_words(graph["redraw_every"], chosen=graph["chosen_anew"], server=server)
    of_first = "" if redrawn == "static" else " in round 0"
    known = "" if graph["receivers_know"] else ", receivers do not know who will send"
    return f"{graph['kind']}, {counted}{of_first}, {redrawn}{known}"


def _spread(spread: Mapping[str, float]) -> str:
    low, high = spread["min"], spread["max"]
    return f"{low:g}" if low == high else f"{low:g} to {high:g} (mean {spread['mean']:g})"


def _weights(weights: Mapping[str, Any]) -> str:
    text = f"{weights['kind']}, {weights['stochastic']}"
    if "psi" not in weights:
        return text
    symmetric = ", symmetric" if weights["symmetric"] else ""
    numbers = f"spectral gap {weights['spectral_gap']:.4g}, psi {weights['psi']:.4g}"
    over = f", {weights['psi_per_round']:.4g} per round over several" if "psi_per_round" in weights else ""
    return f"{text} stochastic{symmetric}, {numbers}{over}"


def _links(rules: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="rules of links, in the long run", title_justify="left")
    for column in ("of", "links", "what", "rule", "comes to", "by"):
        table.add_column(column)
    for rule in rules[:_MOST_ROWS]:
        by = "links" if rule["event"] is None else f"events[{rule['event']}]"
        links = "" if rule["links"] is None else str(rule["links"])
        table.add_row(*map(Text, (rule["of"], links, rule["key"], rule["rule"], say(rule["figures"]), by)))
    if len(rules) > _MOST_ROWS:
        table.add_row("...", f"{len(rules) - _MOST_ROWS} more", "", "", "", "")
    return table


def _labels(data: Mapping[str, Any]) -> Table:
    counts: Sequence[Sequence[int]] = data["counts"]
    table = Table(title=f"training samples of {data['dataset']} by client and class", title_justify="left")
    table.add_column("client", justify="right")
    table.add_column("classes 0 to " + str(data["classes"] - 1))
    table.add_column("samples", justify="right")
    largest = max(max(row) for row in counts)
    for client, row in enumerate(counts[:_MOST_ROWS]):
        cells = "".join(_shade(count, largest) for count in row) if len(row) > 20 else _numbers(row, largest)
        table.add_row(str(client), cells, str(sum(row)))
    if len(counts) > _MOST_ROWS:
        table.add_row("...", f"{len(counts) - _MOST_ROWS} more", "")
    return table


def _numbers(row: Sequence[int], largest: int) -> Text:
    text = Text()
    for count in row:
        strength = 60 + int(195 * count / largest) if largest else 60
        text.append(f"{count:>5}" if count else "    .", style=f"rgb({strength // 3},{strength},{strength // 2})")
    return text


def _shade(count: int, largest: int) -> str:
    return _SHADES[-(-count * (len(_SHADES) - 1) // largest)] if largest else " "


def _events(events: Sequence[Mapping[str, Any]]) -> Table:
    """Events on nodes one by one, what changes links with its end; an entry that changes links often is one row."""
    table = Table(title="scripted events, in order", title_justify="left")
    for column in ("when", "what", "on", "to", "entry"):
        table.add_column(column)
    rows = sorted(_event_rows([from_json(event) for event in events]), key=lambda row: row[0])
    for _, *cells in rows[:_MOST_ROWS]:
        table.add_row(*map(Text, cells))
    if len(rows) > _MOST_ROWS:
        table.add_row("...", f"{len(rows) - _MOST_ROWS} more", "", "", "")
    return table


_EventRow: TypeAlias = tuple[tuple[bool, int, int], str, str, str, str, str]


def _event_rows(events: Sequence[CompiledEvent]) -> Iterator[_EventRow]:
    """The rows, each behind what it is sorted by."""
    for change in link_changes(events):
        often = f", {change.times:,} times" if change.times > 1 else ""
        order = (change.by_round, change.begin, change.source)
        yield order, change.when + often, change.entry, change.where, change.what, f"events[{change.source}]"
    for event in events:
        if event.action not in ("set", "unset"):
            by_round, moment = event.order[:2]
            place, change_to = name_place((), event.nodes), name_change(event.parameters)
            yield (
                (by_round, moment, event.source),
                _when(event),
                event.action,
                place,
                change_to,
                f"events[{event.source}]",
            )


def _when(event: CompiledEvent) -> str:
    if event.at_round is None:
        return format_time(event.at_ns or 0)
    return f"round {event.at_round}" + (f" + {format_time(event.after_ns)}" if event.after_ns else "")


def show_parts(parts: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print the rows of one table: name, parameters with their defaults, help."""
    table = Table()
    columns = ["name", *(["family", "needs"] if any("family" in part for part in parts) else []), "parameters", "help"]
    for column in columns:
        table.add_column(column, style="bold" if column == "name" else "")
    for part in parts:
        parameters = ", ".join(f"{name}: {_default(default)}" for name, default in part["parameters"].items())
        shown = {**part, "parameters": parameters, "needs": ", ".join(part.get("needs", ()))}
        table.add_row(*(Text(str(shown[column])) for column in columns))
    console.print(table)


def _default(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
