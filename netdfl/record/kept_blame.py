"""The result of `netdfl blame`, kept in a run's directory for the run's page: what cost the run its time.

It is a table of nodes, links, events and messages that delayed the run. For its first rows there are also lanes: the
actions of each node over time, in the run and in a run without that row's cause, from the moment at which the two runs
first differ.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from netdfl.record.forms import OPEN, Count, NodeField, Seconds, read_form
from netdfl.record.run import Run

FILE = "blame.json"
SCHEMA: Literal["netdfl/blame/1"] = "netdfl/blame/1"
MOST_ROWS, MOST_CELL, MOST_TEXT = 500, 300, 2000
"""The most rows of the table, the most characters of a cell, and the most of a sentence."""
MOST_SHOWN = 5
"""The most rows of the table for which the nodes' timelines are kept."""
MOST_NODES = 24
"""The most nodes whose timeline is kept: those in which the two runs first differed come first."""
MOST_ITEMS = 2000
"""The most bars (spans of a node's activity) and messages that are kept of one run, some 80 kB: the earliest ones."""
BARS = ("mixing", "training", "waiting", "paused", "down")
"""The activities of a node that its timeline shows as bars; a later one in this list is drawn above earlier ones."""


class BarsForm(TypedDict):
    """The schema of the time spans in which nodes did something, such as training, as one list per field.

    `node[i]` did `BARS[what[i]]` from `since[i]` to `until[i]` seconds.
    """

    node: list[NodeField]
    since: list[Seconds]
    until: list[Seconds]
    what: list[Annotated[int, Field(ge=0, lt=len(BARS))]]


class ArrowsForm(TypedDict):
    """The schema of messages between nodes, a list per field; `arrived` is None for a message that never arrived."""

    src: list[NodeField]
    dst: list[NodeField]
    sent: list[Seconds]
    arrived: list[Seconds | None]
    lost: list[bool]


class LanesForm(TypedDict):
    """The schema of the nodes' timelines in one run: bars for spans of activity, and the messages between nodes.

    `until_s` is the time up to which bars and messages are kept if the run has too many; else it is the run's end,
    `end_s`.
    """

    end_s: Seconds
    until_s: Seconds
    bars: BarsForm
    messages: ArrowsForm


@with_config(OPEN)
class PartingForm(TypedDict):
    """The schema of the timelines for a row of a blame table, with the moment at which the runs first differ.

    The runs are the run itself and one without the row's cause. `lanes` are the timelines of nodes in both runs. If the
    runs never differ, `at_s` is None and there are no timelines.
    """

    row: Count
    words: Annotated[list[str], Field(min_length=1, max_length=3)]
    at_s: Seconds | None
    nodes: Annotated[list[NodeField], Field(max_length=MOST_NODES)]
    num_nodes: Count
    lanes: Annotated[list[LanesForm], Field(max_length=2)]


class KeptRowForm(TypedDict):
    """The schema of a row of `netdfl blame`'s table: its cells, and for each a number to sort by (None: no number)."""

    cells: list[str]
    order: list[float | None]


@with_config(OPEN)
class BlameForm(TypedDict):
    """The schema of `blame.json`, the result of `netdfl blame`. `left_out` counts the rows of its table not kept."""

    schema: Literal["netdfl/blame/1"]
    event_log_hash: str
    target: str
    took: str
    head: list[str]
    rows: Annotated[list[KeptRowForm], Field(max_length=MOST_ROWS)]
    left_out: Count
    sentences: list[str]
    shown: Annotated[list[PartingForm], Field(max_length=MOST_SHOWN)]


def _fitting(found: BlameForm) -> BlameForm:
    """Return a blame file's contents `found` if its rows have equal lengths and it refers only to rows that exist.

    Raises ValueError otherwise.
    """
    if any(len(row["cells"]) != len(found["head"]) or len(row["order"]) != len(found["head"]) for row in found["rows"]):
        raise ValueError(f"each row must have {len(found['head'])} cells")
    for each in found["shown"]:
        if each["row"] >= len(found["rows"]):
            raise ValueError(f"row {each['row']} is none of {len(found['rows'])}")
        for lanes in each["lanes"]:
            for columns in (lanes["bars"], lanes["messages"]):
                if len({len(column) for column in columns.values()}) > 1:  # type: ignore[arg-type]
                    raise ValueError("all columns of lanes must be of one length")
    return found


_BLAME: TypeAdapter[BlameForm] = TypeAdapter(Annotated[BlameForm, AfterValidator(_fitting)])


def kept_blame(run: Run) -> BlameForm | None:
    """Return the result of `netdfl blame` on a run.

    None if there is none, or if the run was continued or repeated after it.

    Raises:
        InputError: the file is damaged.
    """
    found = read_form(run.path / FILE, _BLAME)
    if found is None or (run.finished and run.result.get("event_log_hash") != found["event_log_hash"]):
        return None
    return found
