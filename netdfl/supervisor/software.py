"""On what versions the nodes of a fleet run, where that may be something else than here: refused, or told once."""

from __future__ import annotations

from collections.abc import Mapping

from netdfl.core.control import EVALUATOR
from netdfl.core.errors import MachineError
from netdfl.core.types import NodeId
from netdfl.core.versions import Versions, objection, taken, told
from netdfl.supervisor.fleet import Fleet

HERE = "the supervisor"


def software_of(fleet: Fleet) -> dict[NodeId, Versions]:
    """What each node says that it runs on; of none, where all run on what the supervisor does."""
    if not _ours(fleet):
        return {}
    return {node: taken(hello.versions) for node, hello in sorted(fleet.hellos.items()) if node != EVALUATOR}


def compare(fleet: Fleet) -> None:
    """Tell how what nodes run on differs from what judges their models here.

    Raises MachineError where their digits would differ.
    """
    ours, software = _ours(fleet), software_of(fleet)
    for node, theirs in software.items():
        if reason := objection(f"node {node}", theirs, HERE, ours):
            raise MachineError(reason)
    for sentence in told({f"node {node}": theirs for node, theirs in software.items()}, HERE, ours):
        fleet.note(sentence)


def _ours(fleet: Fleet) -> Mapping[str, str]:
    """What the evaluator runs on: the supervisor's own. Empty where nodes run on the same."""
    hello = fleet.hellos.get(EVALUATOR)
    return {} if hello is None else hello.versions
