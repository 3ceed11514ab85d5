"""The stalls of a fleet without a supervisor, found from two accounts that each node writes about its own state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

from netdfl.core.clock import NS_PER_S
from netdfl.core.types import NodeId
from netdfl.diagnosis.account import Account
from netdfl.diagnosis.assemble import DownNode, assemble
from netdfl.diagnosis.diagnose import confirm, diagnose
from netdfl.diagnosis.finding import Cause, Finding
from netdfl.diagnosis.outages import Outages
from netdfl.diagnosis.remedies import Allows
from netdfl.diagnosis.snapshot import Snapshot, State
from netdfl.diagnosis.watch import Pace
from netdfl.record.directory import RunDirectory
from netdfl.record.forms import read_details, read_form
from netdfl.record.run import Run

ACCOUNTS_FILE = "accounts.json"
QUIET_NS = NS_PER_S
TOGETHER_NS = 5 * NS_PER_S
"""The largest difference in ns between the last accounts of nodes that ended together; older ones are of dead nodes."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """One node's two accounts of its state, each with what the node did and for whom it waited.

    `quiet` was written when its last wait for messages had become long, `last` when the node ended. While the node
    runs, both are the same. If both show the same wait, the node stood still until its end.
    """

    quiet: Account
    last: Account

    @classmethod
    def of(cls, quiet: Account | None, last: Account) -> Self:
        """Return a node's accounts at its end. With a `quiet` of None, the node had no long wait and counts as working.

        A node that works is in no stall.
        """
        return cls(replace(last, state=State.RUNNING, wait=None) if quiet is None else quiet, last)

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """Read the accounts that the node in `directory` wrote; None if there are none."""
        return read_form(directory / ACCOUNTS_FILE, TypeAdapter(cls))

    def write(self, directory: Path) -> None:
        """Write the accounts to a file in `directory`. Raises RunError."""
        said: dict[str, Any] = {"quiet": self.quiet.to_json(), "last": self.last.to_json()}
        RunDirectory(directory).write_json(ACCOUNTS_FILE, said)


def find_stalls(
    accounts: Mapping[NodeId, Accounts],
    nodes: Iterable[NodeId],
    outages: Outages,
    detector: str,
    allows: Allows = lambda setting: True,
) -> tuple[list[Finding], Snapshot]:
    """Return the stalls in which a fleet was when its nodes ended, and the snapshot of the nodes that shows them.

    `outages` are the scheduled outages of nodes and links, `detector` is the kind of failure detector, and `allows`
    returns whether a setting could be added to the scenario as a remedy. A node without an account, or with one that is
    much older than the newest account, counts as dead.
    """
    at_ns = max((each.last.at_ns for each in accounts.values()), default=0)
    down = {node: _down(accounts.get(node)) for node in nodes if not _present(accounts.get(node), at_ns)}
    pace = Pace(accounts)
    for node, each in accounts.items():
        pace.at(node, each.last.round, each.last.since_ns)

    def moment(words: Mapping[NodeId, Account]) -> Snapshot:
        return assemble(at_ns, words, down, outages, detector="none" if detector == "none" else "heartbeat")

    first = moment({node: each.quiet for node, each in accounts.items()})
    second = moment({node: each.last for node, each in accounts.items()})
    return confirm(diagnose(second, patience_ns=pace.patience_ns, allows=allows), first, second), second


def read_probed(run: Run, finished: Collection[NodeId]) -> list[Finding]:
    """Return the deadlocks that nodes found by probes; a deadlock is over if all its nodes have `finished` since."""
    rows = run.rows("SELECT at_s, round, details FROM events WHERE kind = 'probed' ORDER BY at_s, node")
    found: dict[Any, Finding] = {}
    for at_s, round, details in rows:
        said = read_details(details)
        roots, culprits, behind = (tuple(said[name]) for name in ("roots", "culprits", "behind"))
        finding = Finding(
            cause=Cause(said["cause"]),
            told=said["what"],
            remedies=tuple(said["remedies"]),
            round=round,
            began_ns=int((at_s - said["detection_s"]) * NS_PER_S),
            found_ns=int(at_s * NS_PER_S),
            permanent=True,
            suspected=said["suspected"],
            over={*roots, *culprits} <= set(finished),
            roots=roots,
            culprits=culprits,
            behind=behind,
        )
        found.setdefault((finding.cause, finding.what), finding)
    return list(found.values())


def _present(accounts: Accounts | None, at_ns: int) -> bool:
    if accounts is None:
        return False
    return accounts.last.state is State.FINISHED or at_ns - accounts.last.at_ns <= TOGETHER_NS


def _down(accounts: Accounts | None) -> DownNode:
    if accounts is None:
        return DownNode(State.CRASHED, 0, 0)
    return DownNode(State.CRASHED, accounts.last.round, accounts.last.at_ns)
