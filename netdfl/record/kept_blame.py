"""The result of `netdfl blame`, kept in a run's directory for the run's page: what cost the run its time.

It is a table of nodes, links, events and messages that delayed the run. For its first rows there are also lanes: the
actions of nodes over time, in the run and in a run without that cause, from the moment at which the two part.
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
"""The most rows whose lanes are kept."""
MOST_NODES = 24
"""The most nodes that have a lane. Nodes come first that the difference between the runs reached first."""
MOST_ITEMS = 2000
"""The most bars and messages that are kept of one run, some 80 kB. The earliest are kept."""
BARS = ("mixing", "training", "waiting", "paused", "down")
"""The uses of time for which there are bars. Bars of later ones in this list are drawn above earlier ones."""


class BarsForm(TypedDict):
    """The form of the times in which nodes did something, one list per field.

    `node[i]` did `BARS[what[i]]` from `since[i]` to `until[i]` seconds.
    """

    node: list[NodeField]
    since: list[Seconds]
    until: list[Seconds]
    what: list[Annotated[int, Field(ge=0, lt=len(BARS))]]


class ArrowsForm(TypedDict):
    """The form of messages between nodes, one list per field; `arrived` is None for a message that never arrived."""

    src: list[NodeField]
    dst: list[NodeField]
    sent: list[Seconds]
    arrived: list[Seconds | None]
    lost: list[bool]


class LanesForm(TypedDict):
    """The form of the lanes of one run: bars of its nodes, and messages between them.

    `until_s` is the time up to which they are kept if the run has more of them, else the run's end, `end_s`.
    """

    end_s: Seconds
    until_s: Seconds
    bars: BarsForm
    messages: ArrowsForm


@with_config(OPEN)
class PartingForm(TypedDict):
    """The form of a table row whose lanes are kept: where the two runs part, in words, and the lanes of both.

    Where the runs went the same way, `at_s` is None and there are no lanes.
    """

    row: Count
    words: Annotated[list[str], Field(min_length=1, max_length=3)]
    at_s: Seconds | None
    nodes: Annotated[list[NodeField], Field(max_length=MOST_NODES)]
    num_nodes: Count
    lanes: Annotated[list[LanesForm], Field(max_length=2)]


class KeptRowForm(TypedDict):
    """The form of a row of the table: its cells, and for each the number by which it is ordered (None: no number)."""

    cells: list[str]
    order: list[float | None]


@with_config(OPEN)
class BlameForm(TypedDict):
    """The form of `blame.json`. `left_out` counts rows beyond the kept ones."""

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
    """Return `found` if its columns, rows and references fit together. Raises ValueError otherwise."""
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

    None if there is none, or if the run has gone on or was run anew since then.

    Raises:
        InputError: the file is damaged.
    """
    found = read_form(run.path / FILE, _BLAME)
    if found is None or (run.finished and run.result.get("event_log_hash") != found["event_log_hash"]):
        return None
    return found
