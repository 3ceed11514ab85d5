"""The check of reports before the supervisor acts on them: may their sender report this, and as often?

A node is believed in what it reports about itself, as far as that can be true in this run. What a node says about other
nodes is only in its own record, so the supervisor need not believe that. The scenario's rounds and the number of the
node's starts limit how much a node can make the supervisor store.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import get_args

from netdfl.core.control import (
    ENDINGS,
    EVALUATOR,
    Broke,
    Bye,
    Crashed,
    Evaluated,
    FilePart,
    Happened,
    Hello,
    ModelSaved,
    Report,
)
from netdfl.core.types import NodeId
from netdfl.diagnosis.account import Account
from netdfl.supervisor.fleet import FleetState
from netdfl.supervisor.mirror import MOST_BYTES
from netdfl.supervisor.restarts import Restarts

FILES_OF_A_LIFE = 32
"""The most files of its record and log that a node may write in one life (from a start of its process to its end)."""
_PATH = re.compile(r"[a-z]+/[\w.-]{1,100}", re.ASCII)


class ReportCheck:
    """The check of all reports of a fleet; it counts the files and bytes that each node makes the supervisor store."""

    def __init__(self, fleet: FleetState, restarts: Restarts, evaluated: Collection[NodeId]) -> None:
        """Check the reports of `fleet`; `evaluated` are the nodes whose models the evaluator gets."""
        self._fleet, self._restarts, self._evaluated = fleet, restarts, evaluated
        self._ended: Counter[NodeId] = Counter()
        self._files: dict[NodeId, set[str]] = {}
        self._bytes: Counter[NodeId] = Counter()

    def check(self, node: NodeId, report: Report) -> None:
        """Raise ValueError if no honest process of `node`, or of the evaluator, would send this report now."""
        if not isinstance(report, _OF_EVALUATOR if node == EVALUATOR else _OF_NODE):
            raise ValueError(f"it sends no {type(report).__name__}")
        if isinstance(report, Hello) and report.node != node:
            raise ValueError(f"it introduced itself as node {report.node}")
        if node == EVALUATOR:
            return
        if node not in self._fleet.nodes:
            raise ValueError(f"the fleet has {len(self._fleet.nodes)} nodes")
        check_round(getattr(report, "round", 0), self._fleet)
        match report:
            case ModelSaved() if node not in self._evaluated:
                raise ValueError("a model, and only the server's are evaluated")
            case Happened():
                self._check_end(node, report)
            case Crashed():
                self._check_crash(node, report)
            case FilePart():
                self._check_file(node, report)

    def _check_end(self, node: NodeId, said: Happened) -> None:
        """Raise ValueError unless an event that a node reports is its own end, the first one in this life."""
        if said.kind not in ENDINGS or list(said.details) != ["reason"] or not isinstance(said.details["reason"], str):
            raise ValueError(f"an event that no node reports: {said.kind[:80]!r} with {list(said.details)[:8]!r:.200}")
        if self._ended[node] >= self._lives(node):
            raise ValueError("a second end in one life")
        self._ended[node] += 1

    def _check_crash(self, node: NodeId, crash: Crashed) -> None:
        if (node, crash.source) not in self._crashes or crash.state not in ("kept", "lost"):
            raise ValueError(f"a crash that the scenario does not have: entry {crash.source} of its events")
        if self._restarts.has_crashed(node, self._fleet.epochs[node]):
            raise ValueError("a second crash in one life")

    def _check_file(self, node: NodeId, part: FilePart) -> None:
        """Check the name and size of a file that a node sends; `mirror` checks whether the file is that node's."""
        folder, _, name = part.path.partition("/")
        if not _PATH.fullmatch(part.path):
            raise ValueError(f"{part.path[:200]!r} is no file of node {node}")
        if folder == "snapshots":
            round = int(name.partition("-")[0])
            check_round(round, self._fleet)
            if name != f"{round:06d}-{node:03d}.safetensors":
                raise ValueError(f"{part.path!r} is no file of node {node}")
        elif folder in ("models", "checkpoints"):
            if name != f"{node:03d}.safetensors":
                raise ValueError(f"{part.path!r} is no file of node {node}")
        else:
            files = self._files.setdefault(node, set())
            most = FILES_OF_A_LIFE * self._lives(node)
            if part.path not in files and len(files) >= most:
                raise ValueError(f"{part.path!r} is one file more than the {most} that it may write")
            files.add(part.path)
            self._bytes[node] += len(part.data)
            if self._bytes[node] > MOST_BYTES:
                raise ValueError(f"{part.path!r}: its record has more than {MOST_BYTES} bytes")

    def _lives(self, node: NodeId) -> int:
        return self._fleet.epochs[node] + 1

    @cached_property
    def _crashes(self) -> set[tuple[NodeId, int]]:
        """The scripted crashes: each node that crashes, with the entry of the scenario's events."""
        crashes = (event for event in self._fleet.schedule if event.action == "crash")
        return {(node, event.source) for event in crashes for node in event.nodes}


def check_round(round: int, fleet: FleetState) -> None:
    """Raise ValueError if no node of `fleet` can be in `round`, which is from 0 to the number of rounds, inclusive."""
    if not 0 <= round <= fleet.scenario.rounds:
        raise ValueError(f"round {round}, and the run has {fleet.scenario.rounds}")


def check_account(account: Account, node: NodeId, fleet: FleetState) -> None:
    """Raise ValueError if `account` can't be the state of `node`: it is another node's, or names unknown nodes."""
    if account.node != node:
        raise ValueError(f"an account of node {account.node}")
    check_round(account.round, fleet)
    if account.wait is not None:
        check_round(account.wait.round, fleet)
    if strangers := [other for other in _named(account) if other not in fleet.nodes]:
        raise ValueError(f"an account with node {strangers[0]}, and the fleet has {len(fleet.nodes)} nodes")


def _named(account: Account) -> Iterator[NodeId]:
    """Yield all other nodes that an account (a node's report of its state) mentions."""
    yield from account.edges
    yield from account.gone
    yield from account.left_out
    yield from (asking for asking, _, _ in account.asked)
    yield from (dst for dst, _ in account.again)
    if (wait := account.wait) is not None:
        yield from (*(wait.sources or ()), *wait.have, *wait.left_out, *wait.undecided)


_OF_EVALUATOR = (Hello, Evaluated, Broke, Bye)
_OF_NODE = tuple(kind for kind in get_args(Report) if kind is not Evaluated)
