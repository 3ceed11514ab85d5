"""The stalls that were kept of a run: each finding, with what its nodes waited for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from netdfl.record.forms import OPEN, Count, Nanoseconds, NodeField, Pair, Seconds, read_form

FOLDER = "stalls"
MOST_KEPT = 50


@with_config(OPEN)
class Told(TypedDict):
    """A finding as it is kept, as far as the report reads it."""

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
    """What a node waits for, and since when: the awaited nodes are the keys."""

    since_ns: NotRequired[Nanoseconds]
    awaited: dict[Annotated[str, Field(pattern=r"^\d{1,7}$")], Any]


@with_config(OPEN)
class Now(TypedDict):
    """One node of the snapshot."""

    node: NodeField
    wait: WaitForm | None


@with_config(OPEN)
class Kept(TypedDict):
    """One file of the folder."""

    finding: Told
    nodes: list[Now]


_KEPT: TypeAdapter[Kept] = TypeAdapter(Kept)


def kept_stalls(run: Path) -> list[Kept]:
    """What a run's diagnosis kept, those that nothing ends first, then in the order in which they were found.

    Raises:
        InputError: one of them is damaged.
    """
    files = sorted((run / FOLDER).glob("*.json"))[:MOST_KEPT]
    kept = [found for path in files if (found := read_form(path, _KEPT)) is not None]
    return sorted(kept, key=lambda each: not each["finding"]["permanent"])
