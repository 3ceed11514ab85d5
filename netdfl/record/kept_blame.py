"""The blame that `netdfl blame` keeps in a run's directory for its page.

It is the table, and for its first rows the lanes of both runs from the moment at which they part.
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
"""The most rows, and the most letters of a cell and of a sentence."""
MOST_SHOWN = 5
"""The most rows whose lanes are kept."""
MOST_NODES = 24
"""The most nodes that have a lane: those that the difference reached first."""
MOST_ITEMS = 2000
"""The most bars and messages of one run that are kept, those that began first: some 80 kB."""
BARS = ("mixing", "training", "waiting", "paused", "down")
"""The uses of time for which there are bars. Later ones lie above earlier ones."""


class BarsForm(TypedDict):
    """The form of the times in which nodes did something, by column; `what` is an index of `BARS`."""

    node: list[NodeField]
    since: list[Seconds]
    until: list[Seconds]
    what: list[Annotated[int, Field(ge=0, lt=len(BARS))]]


class ArrowsForm(TypedDict):
    """The form of the messages between nodes, by column; `arrived` is None for one that never arrived."""

    src: list[NodeField]
    dst: list[NodeField]
    sent: list[Seconds]
    arrived: list[Seconds | None]
    lost: list[bool]


class LanesForm(TypedDict):
    """The form of the lanes of one run. `until_s` is when they stop, if the run has more than is kept, else its end."""

    end_s: Seconds
    until_s: Seconds
    bars: BarsForm
    messages: ArrowsForm


@with_config(OPEN)
class PartingForm(TypedDict):
    """The form of a row whose lanes are kept: where the runs part, in words, and the lanes of both of `nodes`.

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
    """Return a blame whose columns, rows and references fit together. Raises ValueError."""
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
    """Return the blame of a run; None if there is none, or if the run went on or was made anew since.

    Raises:
        InputError: the file is damaged.
    """
    found = read_form(run.path / FILE, _BLAME)
    if found is None or (run.finished and run.result.get("event_log_hash") != found["event_log_hash"]):
        return None
    return found
