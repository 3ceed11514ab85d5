"""The stalls that a run's diagnosis saved: each stall's description, with the waits of its nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from netdfl.record.forms import OPEN, Count, Nanoseconds, NodeField, Pair, Seconds, read_form

FOLDER = "stalls"
MOST_KEPT = 50


@with_config(OPEN)
class FindingForm(TypedDict):
    """The schema of a diagnosed stall (a finding) as saved in a file, with the fields that the report reads."""

    text: str
    round: Count
    roots: list[NodeField]
    culprits: list[NodeField]
    behind: list[NodeField]
    witness: list[Pair]
    began_s: Seconds
    found_s: Seconds
    permanent: bool


@with_config(OPEN)
class WaitForm(TypedDict):
    """The schema of a node's wait in a saved stall: its start, and the awaited nodes as keys of `awaited`."""

    since_ns: NotRequired[Nanoseconds]
    awaited: dict[Annotated[str, Field(pattern=r"^\d{1,7}$")], Any]


@with_config(OPEN)
class NodeForm(TypedDict):
    """The schema of one node in a saved snapshot of the fleet: the node, and its wait if it waits."""

    node: NodeField
    wait: WaitForm | None


@with_config(OPEN)
class StallForm(TypedDict):
    """The schema of a file in the run's folder of stalls: a diagnosed stall, and the fleet's nodes with their waits."""

    finding: FindingForm
    nodes: list[NodeForm]


_KEPT: TypeAdapter[StallForm] = TypeAdapter(StallForm)


def kept_stalls(run: Path) -> list[StallForm]:
    """Return the stalls that a run saved: permanent ones first, then in the order of their discovery.

    Raises:
        InputError: a file is damaged.
    """
    files = sorted((run / FOLDER).glob("*.json"))[:MOST_KEPT]
    kept = [found for path in files if (found := read_form(path, _KEPT)) is not None]
    return sorted(kept, key=lambda each: not each["finding"]["permanent"])
