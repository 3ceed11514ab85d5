"""A proof about a scenario: its inputs, its answer, and the text of the answer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from netdfl.core.errors import InputError
from netdfl.core.fates import Fate
from netdfl.core.types import Json
from netdfl.explore.explore import check_explorable
from netdfl.prove.bound import FaultBound
from netdfl.prove.drawing import is_drawn
from netdfl.prove.enumeration import Enumeration, PrefixPlayer, ProofProgress, Show
from netdfl.prove.orders import OrderFinder, shares_capacity
from netdfl.prove.player import Play, Player
from netdfl.prove.points import FaultPoint, PointFinder, exact_time
from netdfl.prove.properties import ProvenProperty, broken_by
from netdfl.prove.symmetry import SymmetryGroup, find_symmetries
from netdfl.scenario.build import is_push
from netdfl.scenario.checks.catalog import find_problems
from netdfl.scenario.loading.document import Document
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import Train
from netdfl.scenario.model.world import SimulatedOptions

MOST = 1_000_000
REDUCTIONS = ("void", "symmetry", "commuting")
"""The names of the ways to run fewer schedules with the same answer; each can be switched off."""


@dataclass(frozen=True)
class ProofAnswer:
    """The answer of a proof. Every schedule keeps every property if `progress` has no violation and was not stopped.

    Attributes:
        scenario: the scenario that the proof is about.
        bound: the faults that a schedule may have.
        properties: the properties that were checked.
        progress: the schedules that were run, and the first violation.
        drawn: descriptions of the random draws that other seeds would change.
    """

    scenario: Scenario
    bound: FaultBound
    properties: Sequence[ProvenProperty]
    progress: ProofProgress
    drawn: Sequence[str] = ()

    @property
    def survives(self) -> bool:
        """Whether every schedule within the bound satisfies every property."""
        return self.progress.broken is None and not self.progress.stopped

    @property
    def faults(self) -> tuple[FaultPoint, ...]:
        """The faults of the smallest schedule that violates a property."""
        return () if self.progress.broken is None else self.progress.broken[0]

    def __str__(self) -> str:
        """Return the answer as sentences; the counterexample is described elsewhere."""
        progress, seed = self.progress, f"seed {self.scenario.seed}, these times"
        if self.survives:
            first = f"survives all {progress.schedules:,} schedules (bound: {self.bound}; {seed})"
        elif progress.broken is not None:
            first = f"does not survive {told_changes(self.faults)} (bound: {self.bound}; {seed})"
        else:
            first = f"not finished, as {progress.stopped}: {self._so_far()} (bound: {self.bound}; {seed})"
        return "\n".join([first, *self._more()])

    def _so_far(self) -> str:
        """Return a text on how many schedules are known to keep all properties, and on the runs by number of faults."""
        levels = zip(self.progress.levels, self.progress.done, strict=True)
        told = [f"{done:,} of {all_of:,} with {k}" for k, (all_of, done) in enumerate(levels)]
        many = self.progress.schedules
        keep = f"{many:,} schedule{'s' * (many != 1)} keep{'s' * (many == 1)} all properties"
        return f"{keep}; plays by faults: {', '.join(told)}"

    def _more(self) -> list[str]:
        progress, said = self.progress, [f"properties: {'; '.join(each.name for each in self.properties)}"]
        if progress.schedules > progress.played - progress.refused:
            said.append(f"{progress.played:,} played; the others are equal to one of these")
        if progress.refused:
            said.append(f"{progress.refused:,} left out, as their faults contradict each other")
        if self.drawn:
            said.append(f"drawn here, so that it does not hold for other seeds: {', '.join(self.drawn)}")
        return said


class ScenarioProof:
    """A proof about one scenario: its run without faults, and the enumeration of all schedules within a bound."""

    def __init__(
        self,
        scenario: Scenario,
        bound: FaultBound,
        properties: Sequence[ProvenProperty],
        *,
        without: Sequence[str] = (),
        most: int = MOST,
        jobs: int = 1,
    ) -> None:
        """Run the scenario without faults. Raises InputError for a scenario that can't be proven.

        Args:
            scenario: the scenario that the proof is about.
            bound: the faults that a schedule may have.
            properties: the properties to check.
            without: names of reductions (ways to run fewer schedules) that are not used.
            most: the number of schedules after which the proof stops.
            jobs: the number of processes that run schedules.
        """
        _check(scenario)
        if bound.orders:
            scenario = one_by_one(scenario)
        self.scenario, self.bound, self.properties, self.without = scenario, bound, properties, without
        reads_rows = any(each.reads_rows for each in properties)
        self.player = Player(scenario, judged=reads_rows)
        self.baseline = self._baseline()
        last_ns = self.baseline.run.length_ns
        self.round_ns = self.player.round_ns = max(1, last_ns // scenario.rounds)
        self.drawn = is_drawn(scenario)
        self.finder = PointFinder(
            bound=bound,
            round_ns=self.round_ns,
            rounds=scenario.rounds,
            crashes=[way for way in self._ways() if bound.most.get("crash")],
            copied=any(getattr(entry, "duplicate", None) is not None for entry in scenario.links.values()),
            drops_late=self._drops_late(),
            unweighed=() if is_push(scenario) else (Fate.IN_FLIGHT.text,),
            reads_rows=reads_rows or bound.orders,  # what is lost is due no more, which changes the orders
        )
        commuting = "commuting" not in without and not shares_capacity(scenario)
        prefix_player = PrefixPlayer(
            self.player, self.finder, properties, OrderFinder(commuting) if bound.orders else None
        )
        symmetries = self._symmetries() if "symmetry" not in without else SymmetryGroup()
        self.enumeration = Enumeration(bound, prefix_player, symmetries, "void" not in without, most, jobs)

    def run(self, seconds: float | None = None, show: Show = lambda progress: None) -> ProofAnswer:
        """Run the scenario under every schedule, for at most `seconds` (None: no limit); return the answer.

        `show` gets the progress.
        """
        ends_s = None if seconds is None else time.monotonic() + seconds
        progress = self.enumeration.run(ends_s, show)
        return ProofAnswer(self.scenario, self.bound, self.properties, progress, self.drawn)

    def _baseline(self) -> Play:
        """Return the run without faults, after checking that it is repeatable and satisfies all properties."""
        first, again = self.player.play(), self.player.play()
        if first.run.event_log_hash != again.run.event_log_hash:
            raise InputError(
                "the scenario does not repeat: two runs with one seed gave two event logs; `netdfl run "
                "--check-determinism` names the first event that differs"
            )
        broken = broken_by(first, self.properties)
        if broken is not None:
            raise InputError(f"the scenario fails without any fault: {broken[1]} ({broken[0]})")
        if self.bound.orders and self._has_messages_at_once(first):
            raise InputError(
                "order: all: messages arrive at the instant at which they are sent, so that what is due at an instant "
                "is not known as it begins; give all links a latency"
            )
        return first

    @staticmethod
    def _has_messages_at_once(play: Play) -> bool:
        return any(message.arrived_ns == message.sent_ns for message in play.run.rows.messages)

    def _drops_late(self) -> bool:
        """Return whether a message that its receiver no longer awaits has no effect: it is not answered, nor mixed."""
        return not _uses_late(self.scenario) and not any(self.bound.most.get(kind) for kind in ("crash", "pause"))

    def _ways(self) -> list[Json]:
        """Return the forms of a crash that the scenario can have, as keys of an event.

        A node crashes for good, or returns one round later with its state, or without it.
        """
        back = {"restart_after": exact_time(self.round_ns)}
        ways: list[Json] = [{}, back, {**back, "state": "lost"}]
        return [way for way in ways if not self._problems({"at": "1ns", "crash": 0, **way})]

    def _problems(self, event: Json) -> bool:
        alone = self.scenario.model_copy(update={"events": [*self.scenario.events, dict(event)]})
        return bool(find_problems(alone, Document("scenario"), frozenset()))

    def _symmetries(self) -> SymmetryGroup:
        """Return the symmetries that preserve all properties.

        The group is empty if a property depends on computed numbers, the scenario draws at random, a message takes no
        time, or the proof tries other orders of messages and timers that are due at one instant.
        """
        numeric = any(each.numeric for each in self.properties)
        if numeric or self.drawn or self.bound.orders or self._has_messages_at_once(self.baseline):
            return SymmetryGroup()
        return find_symmetries(self.scenario, self.finder.points(self.baseline))


def told_changes(faults: Sequence[FaultPoint]) -> str:
    """Return the number of faults and of reordered instants as text: `1 fault and another order at 2 instants`."""
    orders = len({fault.at_ns for fault in faults if fault.kind == "order"})
    many = sum(fault.kind != "order" for fault in faults)
    told = f"{many} fault{'s' * (many != 1)}"
    other = f"another order at {orders} instant{'s' * (orders != 1)}"
    return told if not orders else f"{told} and {other}" if many else other


def one_by_one(scenario: Scenario) -> Scenario:
    """Return a scenario in which messages and timers due at one instant act one by one."""
    world = scenario.world
    if not isinstance(world, SimulatedOptions) or world.order is not None:
        return scenario
    return scenario.model_copy(update={"world": world.model_copy(update={"order": {}})})


def _uses_late(scenario: Scenario) -> bool:
    """Return whether a node answers, or mixes the model of, a message that comes after it stopped waiting for it."""
    return scenario.delivery.kind != "plain" or is_push(scenario) or bool(scenario.wait.stale)


def find_reductions(names: Sequence[str]) -> Sequence[str]:
    """Return the ways to run fewer schedules (reductions) with these names. Raises InputError for an unknown name."""
    wrong = [name for name in names if name not in REDUCTIONS]
    if wrong:
        raise InputError(f"--without: {wrong[0]!r} is no reduction; use {', '.join(REDUCTIONS)}")
    return names


def _check(scenario: Scenario) -> None:
    """Raise InputError for a scenario that can't be proven."""
    check_explorable(scenario)
    if isinstance(scenario.task, Train):
        raise InputError(
            f"task: {scenario.name} trains a model on data, which takes far too long for every schedule; prove it on a "
            "toy task: {kind: consensus, dim: 1} or {kind: quadratic}"
        )
