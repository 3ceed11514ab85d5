"""Schemas of the files in a run directory, with the fields that are read.

Each file is checked like input from the network.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError, with_config
from pydantic_core import from_json
from typing_extensions import TypedDict

from netdfl.core.errors import InputError
from netdfl.core.files import read_plain
from netdfl.core.types import NodeId
from netdfl.record.database import MOST_NODES, MOST_S

T = TypeVar("T")

NodeField: TypeAlias = Annotated[NodeId, Field(strict=True, ge=0, lt=MOST_NODES)]
Count: TypeAlias = Annotated[int, Field(strict=True, ge=0, lt=1 << 53)]
Nanoseconds: TypeAlias = Annotated[int, Field(strict=True, ge=-MOST_S * 1e9, le=MOST_S * 1e9)]
Seconds: TypeAlias = Annotated[float, Field(strict=True, ge=-MOST_S, le=MOST_S, allow_inf_nan=False)]
Pair: TypeAlias = Annotated[list[NodeField], Field(min_length=2, max_length=2)]
Named: TypeAlias = dict[str, list[NodeField]]
"""Sets of nodes by name."""
Place: TypeAlias = Annotated[list[Annotated[float, Field(ge=-1e6, le=1e6)]], Field(min_length=2, max_length=2)]
MOST_SITES = 20_000
MOST_CORE_LINKS = 200_000
OPEN = ConfigDict(extra="allow")
"""Configuration of a file's schema: the file may have fields that netdfl does not read."""


@with_config(OPEN)
class GraphForm(TypedDict):
    """The schema of `graph.json`: the nodes and edges of the fleet's graph, its kind, and how often it is redrawn."""

    num_nodes: Annotated[int, Field(strict=True, ge=1, le=MOST_NODES)]
    edges: list[Pair]
    directed: NotRequired[bool]
    server: NotRequired[NodeField | None]
    kind: NotRequired[str]
    redraw_every: NotRequired[Count]
    chosen_anew: NotRequired[bool]
    groups: NotRequired[Named]
    sites: NotRequired[Named]
    places: NotRequired[list[Place | None] | None]


SiteNumber: TypeAlias = Annotated[int, Field(strict=True, ge=0, lt=MOST_SITES)]
LinkNumber: TypeAlias = Annotated[int, Field(strict=True, ge=0, lt=MOST_CORE_LINKS)]


@with_config(OPEN)
class CoreLinkForm(TypedDict):
    """The schema of one direction of a core link in `underlay.json`, with its rate, latency and loss before any event.

    `src` and `dst` are the numbers of its sites. `rate_bps` is None for an unlimited rate. `down_s` has begin and end
    of each outage in seconds (an end of None: for good).
    """

    src: SiteNumber
    dst: SiteNumber
    rate_bps: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
    latency_s: Annotated[float, Field(ge=0, le=MOST_S)]
    loss: Annotated[float, Field(ge=0, le=1)]
    down_s: NotRequired[list[Annotated[list[Seconds | None], Field(min_length=2, max_length=2)]]]


@with_config(OPEN)
class RoutesForm(TypedDict):
    """The schema of the routes in `underlay.json` from the time `since_s` on: the core links between each two sites.

    A route in `ways` is `[source site, destination site, [core links in order]]`, all by number.
    """

    since_s: Seconds
    ways: list[tuple[SiteNumber, SiteNumber, list[LinkNumber]]]


@with_config(OPEN)
class UnderlayForm(TypedDict):
    """The schema of `underlay.json`: sites' names, the number of each node's site, core links, and routes over time."""

    sites: Annotated[list[str], Field(min_length=1, max_length=MOST_SITES)]
    site_of: list[SiteNumber]
    links: Annotated[list[CoreLinkForm], Field(max_length=MOST_CORE_LINKS)]
    routes: Annotated[list[RoutesForm], Field(min_length=1)]


@with_config(ConfigDict(extra="ignore"))
class SizeForm(TypedDict):
    """The schema of `graph.json` if only the number of nodes is read, because a large fleet has very many edges."""

    num_nodes: Annotated[int, Field(strict=True, ge=1, le=MOST_NODES)]


@with_config(OPEN)
class PartitionForm(TypedDict):
    """The schema of `partition.json`: the number of samples of each class at each client."""

    classes: Annotated[list[str | int], Field(max_length=MOST_NODES)]
    counts: Annotated[list[list[Annotated[float, Field(ge=0, le=1e15)]]], Field(min_length=1, max_length=MOST_NODES)]


@with_config(OPEN)
class FleetForm(TypedDict, total=False):
    """The schema of `fleet.json`, a run's status file, with the fields that the report of an unfinished run reads."""

    scenario: str
    rounds: Count
    rounds_done: Count


@with_config(OPEN)
class LinkEventForm(TypedDict):
    """The schema of a line of `events.jsonl`, the run's compiled event schedule, for an event that changes links."""

    action: Literal["set", "unset"]
    source: Count
    entry: NotRequired[str]
    at_ns: NotRequired[Nanoseconds]
    at_round: NotRequired[Annotated[int, Field(strict=True, ge=0, lt=1 << 31)]]
    until_round: NotRequired[Annotated[int, Field(strict=True, ge=0, lt=1 << 31)]]
    where: NotRequired[str]
    change: NotRequired[str]


def _within(graph: GraphForm) -> GraphForm:
    over = [edge for edge in graph["edges"] if max(edge) >= graph["num_nodes"]]
    server = graph.get("server") or 0
    if over or server >= graph["num_nodes"]:
        raise ValueError(f"node {max(over[0]) if over else server} is none of {graph['num_nodes']}")
    return graph


def _rectangular(partition: PartitionForm) -> PartitionForm:
    if any(len(row) != len(partition["classes"]) for row in partition["counts"]):
        raise ValueError(f"each client must have {len(partition['classes'])} counts, one of each class")
    return partition


def _numbered(underlay: UnderlayForm) -> UnderlayForm:
    num_sites, num_links = len(underlay["sites"]), len(underlay["links"])
    ways = [way for routes in underlay["routes"] for way in routes["ways"]]
    ends = [end for link in underlay["links"] for end in (link["src"], link["dst"])]
    sites = [*underlay["site_of"], *ends, *(site for way in ways for site in way[:2])]
    if max(sites, default=0) >= num_sites:
        raise ValueError(f"site {max(sites)} is none of {num_sites}")
    if (most := max((link for *_, way in ways for link in way), default=-1)) >= num_links:
        raise ValueError(f"core link {most} is none of {num_links}")
    return underlay


UNDERLAY: TypeAdapter[UnderlayForm] = TypeAdapter(Annotated[UnderlayForm, AfterValidator(_numbered)])
GRAPH: TypeAdapter[GraphForm] = TypeAdapter(Annotated[GraphForm, AfterValidator(_within)])
SIZE: TypeAdapter[SizeForm] = TypeAdapter(SizeForm)
PARTITION: TypeAdapter[PartitionForm] = TypeAdapter(Annotated[PartitionForm, AfterValidator(_rectangular)])
FLEET: TypeAdapter[FleetForm] = TypeAdapter(FleetForm)
RESULT: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, object])


_WRONG = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""Errors that a damaged file may raise while it is read."""


@contextmanager
def damaged(path: Path, doing: str) -> Iterator[None]:
    """Convert errors that a damaged file raises inside the context into an InputError about `path`.

    `doing` is the participle of what was tried, such as `read`.
    """
    try:
        yield
    except InputError:
        raise
    except _WRONG as exc:
        raise InputError(
            f"{path} can't be {doing}: its files are damaged, or of another version of netdfl "
            f"({type(exc).__name__}: {exc})"
        ) from exc


def read_details(text: str | None) -> dict[str, Any]:
    """Parse the details of a row of `events`; return an empty dict if they are not a JSON object."""
    found = _from_column(text)
    return found if isinstance(found, dict) else {}


def read_nodes(text: str | None) -> list[NodeId]:
    """Parse a list of nodes from a column; return an empty list if the column holds no such list."""
    return [each for each in read_list(text) if type(each) is int]


def read_list(text: str | None) -> list[Any]:
    """Parse a list from a column of JSON; return an empty list if the column holds no list."""
    found = _from_column(text)
    return found if isinstance(found, list) else []


def _from_column(text: str | None) -> object:
    try:
        return from_json(text) if text else None
    except ValueError:  # nested too deeply: DuckDB has read it as JSON already
        return None


def read_lines(path: Path, form: TypeAdapter[T]) -> list[T]:
    """Parse the lines of the file `path`; return an empty list if it does not exist. Raises InputError if damaged."""
    try:
        return [form.validate_json(line) for line in read_plain(path).splitlines()]
    except FileNotFoundError:
        return []
    except ValidationError as error:
        raise InputError(f"{path} is damaged: {_said(error)}") from error


def read_form(path: Path, form: TypeAdapter[T]) -> T | None:
    """Parse the JSON file `path`; return None if it does not exist. Raises InputError if it is damaged."""
    try:
        return form.validate_json(read_plain(path))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise InputError(f"{path} is damaged: {_said(error)}") from error


def _said(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return (f"{place}: {first['msg']}" if place else first["msg"])[:300]
