"""The resumption of a killed run of real nodes, from its checkpoints and its record.

Every node restarts from its last checkpoint, on the fleet's own clock, and the record continues. Whether this equals a
run that was never killed depends on the checkpoints. With acknowledged delivery and a checkpoint each round nothing is
missing: messages that a node had received and not saved are still unacknowledged at their senders. Otherwise messages
under way are lost, and checkpoints of different rounds are no state that the fleet was ever in: then the run's verdict
says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, with_config
from safetensors import SafetensorError, safe_open
from typing_extensions import TypedDict

from netdfl.core.clock import NS_PER_S
from netdfl.core.control import Life, Rejoin
from netdfl.core.errors import InputError
from netdfl.core.types import NodeId
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.returns import find_return, joins_by_node
from netdfl.node.checkpoint import HEADER
from netdfl.record.directory import CHECKPOINTS, RunDirectory
from netdfl.record.forms import OPEN, Seconds, read_details, read_form
from netdfl.record.run import Run
from netdfl.scenario.build import compile_schedule
from netdfl.scenario.model.schema import Scenario

RESUMPTIONS = "resumed.json"


@dataclass(frozen=True, kw_only=True)
class Resumption:
    """The state in which a killed run continues.

    Attributes:
        epoch: the number of this start of the nodes' processes, one more than any before.
        at_ns: the time on the fleet's clock at which the run continues.
        rounds: the number of rounds that each node had ended.
        at_least: the round before which no node continues, as other nodes would not send their messages again.
        down: nodes that crashed before and do not return.
        absent: nodes that have yet to join.
        judged: rounds that are evaluated already.
        doubt: the reason why the run may differ from one that was never killed; empty if it does not.
    """

    epoch: int
    at_ns: int
    rounds: Mapping[NodeId, int]
    at_least: int = 0
    down: frozenset[NodeId] = frozenset()
    absent: frozenset[NodeId] = frozenset()
    judged: frozenset[int] = frozenset()
    doubt: str = ""

    @property
    def life(self) -> Life:
        """The life of all nodes after the resumption: the number of this start, and that they keep their state."""
        return Life(self.epoch, Rejoin(keep_state=True, round=0, at_least=self.at_least))

    def to_json(self) -> dict[str, Any]:
        """Return this resumption as an entry for `resumed.json` and `result.json`."""
        plain = asdict(self) | {"down": sorted(self.down), "at_s": self.at_ns / NS_PER_S}
        return {key: plain[key] for key in ("at_s", "epoch", "rounds", "at_least", "down", "doubt")}


def find_resumption(run: Run, scenario: Scenario) -> Resumption:
    """Return the state in which the killed `run` of `scenario` continues. Raises InputError without a checkpoint."""
    nodes = range(scenario.num_nodes)
    rounds = {node: _round_of(run.path / CHECKPOINTS / f"{node:03d}.safetensors") for node in nodes}
    if not any(rounds.values()):
        raise InputError(
            f"{run.path} holds no checkpoint: its nodes saved none before they ended. Run its scenario.yaml anew, "
            "with checkpoint.every to be able to resume it"
        )
    schedule = compile_schedule(scenario)
    down, absent = _down(run, schedule), _absent(run, schedule)
    alive = {node: round for node, round in rounds.items() if node not in down | absent}
    return Resumption(
        epoch=1 + (run.rows("SELECT max(epoch) FROM round_totals")[0][0] or 0),
        at_ns=_last_ns(run),
        rounds=rounds,
        at_least=max(alive.values()) if _waits_for_ever(scenario) else 0,
        down=down,
        absent=absent,
        judged=frozenset(r for (r,) in run.rows("SELECT DISTINCT round FROM metrics WHERE node IS NULL")),
        doubt=_doubt(scenario, alive),
    )


def note(path: Path, resumption: Resumption) -> None:
    """Append `resumption` to the list of resumptions in the run directory `path`."""
    RunDirectory(path).write_json(RESUMPTIONS, [*resumptions(path), resumption.to_json()])


@with_config(OPEN)
class ResumptionForm(TypedDict):
    """The JSON keys that are read from an entry of `resumed.json`, the list of a run's resumptions."""

    at_s: Seconds
    doubt: str


_RESUMED: TypeAdapter[list[ResumptionForm]] = TypeAdapter(list[ResumptionForm])


def resumptions(path: Path) -> list[ResumptionForm]:
    """Return the resumptions listed in the run directory `path`. Raises InputError."""
    return read_form(path / RESUMPTIONS, _RESUMED) or []


def _round_of(path: Path) -> int:
    """Return the round at which a checkpoint continues; 0 if there is none. Raises InputError if it is damaged."""
    if not path.exists():
        return 0
    try:
        with safe_open(str(path), "np") as file:
            state, _ = json.loads((file.metadata() or {})[HEADER])["tuple"]
        return int(state["fields"]["round"])
    except (OSError, SafetensorError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: expected a node's checkpoint, got {error!r}; delete it to begin that node anew"
        ) from error


def _down(run: Run, events: Sequence[CompiledEvent]) -> frozenset[NodeId]:
    """Return the nodes that crashed as scheduled and have no scheduled return."""
    rows = run.rows("SELECT node, at_s, kind, details FROM events WHERE kind IN ('crash', 'restart') ORDER BY at_s")
    last = {node: (at_s, kind, read_details(details)) for node, at_s, kind, details in rows}
    return frozenset(
        node
        for node, (at_s, kind, how) in last.items()
        if kind == "crash"
        and find_return(events, node, round(at_s * NS_PER_S), source=how["source"], at_round=how["at_round"]) is None
    )


def _absent(run: Run, events: Sequence[CompiledEvent]) -> frozenset[NodeId]:
    """Return the nodes that are to join late and have not joined yet."""
    joined = {node for (node,) in run.rows("SELECT node FROM events WHERE kind = 'join'")}
    return frozenset(joins_by_node(events).keys() - joined)


def _last_ns(run: Run) -> int:
    """Return the time of the last entry of the record, in ns."""
    times = "SELECT sent_s AS t FROM messages UNION ALL SELECT at_s FROM metrics UNION ALL SELECT at_s FROM events"
    return round((run.rows(f"SELECT max(t) FROM ({times})")[0][0] or 0) * NS_PER_S)


def _waits_for_ever(scenario: Scenario) -> bool:
    """Return whether a node would wait forever for a message that was under way when the run was killed."""
    wait, plain = scenario.wait, scenario.delivery.kind != "acknowledged"
    family = scenario.algorithm.traits.family
    return plain and family != "bilateral" and wait.deadline is None and wait.need != "none"


def _doubt(scenario: Scenario, rounds: Mapping[NodeId, int]) -> str:
    first, last = min(rounds.values()), max(rounds.values())
    if first == last or (scenario.delivery.kind == "acknowledged" and scenario.checkpoint.every in (None, 1)):
        return ""
    return f"from checkpoints of rounds {first} to {last}, which is no state that the fleet was ever in"
