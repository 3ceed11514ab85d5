"""Checks that a run can be replayed, and that each row of the replay is in the run's record."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from netdfl.core.clock import NS_PER_S
from netdfl.core.errors import InputError, NetdflError
from netdfl.core.fates import Fate
from netdfl.core.outcome import Outcome
from netdfl.core.types import Edge, MessageId, NodeId
from netdfl.record.run import Run
from netdfl.running.provenance import other_versions, refuse_changed
from netdfl.scenario.load import load
from netdfl.scenario.model.schema import Scenario
from netdfl.worlds.catalog import entry_of

_Row: TypeAlias = tuple[object, ...]


class ReplayDivergence(NetdflError):
    """The error for a replay that differs from the record of the run that it repeats."""


class RecordedRows:
    """The messages and metrics in a run's record, each of which the run's replay must produce once.

    If the run recorded only some of its messages, only these are compared. `parted` describes the first difference; it
    is empty until one is found.
    """

    def __init__(self, run: Run) -> None:
        """Read the messages and metrics of `run`. Raises InputError if its record is damaged."""
        self._run, self._records = run, run.sampling.records
        with run.held():
            messages = run.rows(
                "SELECT src, dst, kind, epoch, round, step, attempt, nbytes, sent_s, arrived_s, fate FROM messages"
            )
            metrics = run.rows("SELECT at_s, node, round, name, value FROM metrics")
            ((last_s,),) = run.rows(
                "SELECT max(s) FROM (SELECT max(coalesce(arrived_s, sent_s)) AS s FROM messages "
                "UNION ALL SELECT max(at_s) FROM metrics)"
            )
        self._left: Counter[_Row] = Counter((*row[:8], _ns(row[8]), _ns(row[9]), row[10]) for row in messages)
        self._left.update((_ns(row[0]), *row[1:]) for row in metrics)
        whole = run.finished and run.result.get("verdict") != "unknown"
        self._until_ns = None if whole else _ns(last_s) or 0
        self.parted = ""

    def outcome(self, at_ns: int, outcome: Outcome) -> None:
        """Compare messages of the replay with the record, as their fate (delivered, lost ...) is known from `at_ns` on.

        The first difference is described in `parted`.
        """
        edges, id, nbytes, sent_ns, arrived_ns, fate = outcome
        rest = (id.kind, id.incarnation, *id.at, id.attempt, nbytes, sent_ns, arrived_ns, fate.text)
        for edge in edges:
            recorded = self._records(*edge, *id.at, id.attempt, fate.text)
            if recorded and self._lacks(at_ns, (*edge, *rest)):
                self.parted = self._of_message(edge, id, (nbytes, arrived_ns, fate))

    def metric(self, at_ns: int, node: NodeId | None, round: int, name: str, value: float) -> None:
        """Compare a metric of the replay with the record; the first difference is described in `parted`.

        The metric `weight_sum` is not compared. It follows from the nodes' push-sum weights, which are compared, and
        older versions of netdfl divided it by the number of living nodes.
        """
        if name == "weight_sum":
            return
        finite = value if value - value == 0 else None
        if self._lacks(at_ns, (at_ns, node, round, name, finite)):
            was = self._run.rows(
                "SELECT at_s, value FROM metrics WHERE node IS NOT DISTINCT FROM ? AND round = ? AND name = ?",
                (node, round, name),
            )
            who = "the fleet" if node is None else f"node {node}"
            told = f"{was[0][1]:g} at {was[0][0]:g} s" if was and was[0][1] is not None else "none"
            now = f"{value:g} at {at_ns / NS_PER_S:g} s"
            self.parted = f"{name} of {who} in round {round} was {told} in the run, and is {now} played again"

    def _lacks(self, at_ns: int, row: _Row) -> bool:
        """Return whether the record lacks this row of the replay.

        Rows after the end of an incomplete record are never counted as lacking. Each recorded row matches one row.
        """
        if self.parted or (self._until_ns is not None and at_ns >= self._until_ns):
            return False
        if not self._left.get(row):
            return True
        self._left[row] -= 1
        return False

    def _of_message(self, edge: Edge, id: MessageId, now: tuple[int, int | None, Fate]) -> str:
        was = self._run.rows(
            "SELECT nbytes, arrived_s, fate FROM messages WHERE (src, dst) = (?, ?) "
            "AND (kind, epoch, round, step, attempt) = (?, ?, ?, ?, ?)",
            (*edge, id.kind.value, id.incarnation, *id.at, id.attempt),
        )
        told = (
            " and ".join(_end(nbytes, _ns(arrived_s), Fate.read(text)) for nbytes, arrived_s, text in was) or "not sent"
        )
        what = f"the {id.kind} message {edge[0]}->{edge[1]} of round {id.at.round}, step {id.at.step}"
        return f"{what} was {told} in the run, and is {_end(*now)} played again"


def _end(nbytes: int, arrived_ns: int | None, fate: Fate) -> str:
    when = "" if arrived_ns is None else f" at {arrived_ns / NS_PER_S:g} s"
    return f"{fate}{when} ({nbytes} bytes)"


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * NS_PER_S)


def replayable(run: Run) -> Scenario:
    """Return the scenario of `run`, after checking that neither the scenario nor the code that it uses has changed.

    Raises:
        InputError: the run was made in real time and not in simulation, or its scenario or code has changed.
    """
    refuse_changed(run.path, "replayed")
    scenario = load(run.path / "scenario.yaml")
    if not entry_of(scenario).repeatable:
        raise InputError(
            f"{run.path} can't be replayed: it ran in the world {scenario.world.kind}, which does not repeat itself; "
            "run its scenario with --on simulated, and replay that"
        )
    return scenario


def parted_words(run: Run, what: str) -> str:
    """Return an error text: `run` can't be replayed, as the replay differs from it in `what`, with possible reasons."""
    others = other_versions(run.path)
    why = "; ".join(others) if others else "a part of it that does not repeat itself (its task, its data, a rule)"
    return f"{run.path} can't be replayed, for it goes another way: {what}. The reason: {why}"
