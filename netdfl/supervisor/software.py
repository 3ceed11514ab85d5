"""The check of nodes' software versions against the supervisor's: refused if results would differ, else reported."""

from __future__ import annotations

from collections.abc import Mapping

from netdfl.core.control import EVALUATOR
from netdfl.core.errors import MachineError
from netdfl.core.types import NodeId
from netdfl.core.versions import Versions, objection, taken, told
from netdfl.supervisor.fleet import FleetState

HERE = "the supervisor"


def software_of(fleet: FleetState) -> dict[NodeId, Versions]:
    """Return the software versions that each node reported; empty if all use the supervisor's."""
    if not _ours(fleet):
        return {}
    return {node: taken(hello.versions) for node, hello in sorted(fleet.hellos.items()) if node != EVALUATOR}


def compare(fleet: FleetState) -> None:
    """Report differences between the nodes' software versions and the evaluator's.

    Raises MachineError if their results would differ.
    """
    ours, software = _ours(fleet), software_of(fleet)
    for node, theirs in software.items():
        if reason := objection(f"node {node}", theirs, HERE, ours):
            raise MachineError(reason)
    for sentence in told({f"node {node}": theirs for node, theirs in software.items()}, HERE, ours):
        fleet.note(sentence)


def _ours(fleet: FleetState) -> Mapping[str, str]:
    """Return the evaluator's software versions, which are the supervisor's; empty if all nodes surely use the same."""
    hello = fleet.hellos.get(EVALUATOR)
    return {} if hello is None else hello.versions
