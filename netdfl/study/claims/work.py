"""The background work that makes runs until all claims are decided or the budget is spent.

A claim is tested after certain numbers of seeds; each such test is called a look.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

from netdfl.core.errors import InputError
from netdfl.record.judge import WELL
from netdfl.scenario.load import load
from netdfl.scenario.loading.identity import scenario_hash
from netdfl.study.cells import CellJob, CellResult, StudyProgress, look, run_all
from netdfl.study.claims.deciding import Decision, Gains, decide, in_turn
from netdfl.study.claims.given import Claim, Rule, WantedCell, cells_of
from netdfl.study.claims.rows import (
    CellRow,
    Proof,
    RowFolder,
    arithmetic,
    computing_code,
    proof_name,
    proof_of_run,
    row_name,
    row_of_run,
)
from netdfl.study.keeping import MOST_CPU_S
from netdfl.study.plan import Cell
from netdfl.study.progress import FILE, StudyPlan
from netdfl.study.reproduce import SCENARIOS, missing_data

Method: TypeAlias = tuple[str, str]
"""A scenario file and a method, by their names; each such pair has a short test run of its own."""


@dataclass
class ClaimStudy:
    """The claims, with the results of runs made for them so far."""

    rule: Rule
    rows: RowFolder
    scenarios: Path = SCENARIOS
    cells: Mapping[str, Mapping[str, WantedCell]] = field(init=False)
    _hashes: dict[WantedCell, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Collect the runs that all claims need. Raises ValueError if one can't be run."""
        self.cells = {name: cells_of(claim, self.scenarios) for name, claim in self.rule.claims.items()}

    def counted(self) -> dict[str, CellRow]:
        """Return the claims' rows (results of runs) that count, by name of the file.

        A row counts while the short test run of its method gives the same event log, and its scenario is the same.
        """
        wanted = {(each.file.stem, each.sets): each for cells in self.cells.values() for each in cells.values()}

        def is_same(row: CellRow) -> bool:
            each = wanted.get((row.file, row.sets[:-1]))
            return each is not None and (not row.scenario or row.scenario == self.scenario_hash(each))

        return {name: row for name, row in self.rows.counted().items() if is_same(row)}

    def scenario_hash(self, wanted: WantedCell) -> str:
        """Return the hash of a run's scenario, without its seed, as the scenario's file was at the first call."""
        if wanted not in self._hashes:
            self._hashes[wanted] = scenario_hash(load(wanted.file, wanted.sets))
        return self._hashes[wanted]

    def gains(self) -> dict[str, Gains]:
        """Return each claim's gains (differences between the two methods) by seed, from valid results of runs.

        A pair of runs counts if both passed, have equal partitions of the data, and were made with the same arithmetic.
        """
        counted = self.counted()
        return {name: dict(self._gains(claim, name, counted)) for name, claim in self.rule.claims.items()}

    def decisions(self) -> dict[str, Decision]:
        """Return the decision on each claim, by the claim's name, from the results of runs so far."""
        return decide(self.rule, self.gains())

    def cost_s(self, name: str) -> float:
        """Return the CPU time in seconds of the valid runs for a claim; a run may serve several claims."""
        counted = self.counted()
        return sum(row.cpu_s for row in counted.values() if self._is_of(row, name))

    def spent_s(self) -> float:
        """Return the CPU time in seconds of all runs and short test runs, including replaced ones.

        Rows with the same event log are of one run, under the names of two claims, which is counted once.
        """
        runs: dict[str, float] = {}
        for row in self.rows.rows().values():
            runs[row.event_log_hash] = max(runs.get(row.event_log_hash, 0.0), row.cpu_s + row.replaced_cpu_s)
        return sum(runs.values()) + sum(each.cpu_s + each.replaced_cpu_s for each in self.rows.proofs().values())

    def estimate_s(self, wanted: WantedCell) -> float | None:
        """Return the estimated CPU seconds of one run; None if no estimate is possible.

        The estimate comes from runs with other seeds or, without these, from the method's short test run.
        """
        alike = [row.cpu_s for row in self.rows.rows().values() if _is_run_of(row, wanted)]
        method = (wanted.file.stem, wanted.method)
        proofs = [each.cpu_s for each in self.rows.proofs().values() if (each.file, each.method) == method]
        if alike or not proofs:
            return fmean(alike) if alike else None
        return fmean(proofs) * load(wanted.file, wanted.sets).rounds / self.rule.proof_rounds

    def next_seeds(self, decisions: Mapping[str, Decision]) -> dict[str, range]:
        """Return, for each undecided claim, the seeds of its next look (test)."""
        gains = self.gains()
        found = {}
        for name, decision in decisions.items():
            first = self.rule.claims[name].first_seed
            have = len(in_turn(gains[name], first))
            more = next((look for look in self.rule.looks if look > have), None)
            if decision.word == "undecided" and more is not None:
                found[name] = range(first, first + more)
        return found

    def missing(self, name: str) -> Iterator[tuple[WantedCell, int]]:
        """Yield the runs, with their seeds, that a claim's next look (test) still needs, lowest seeds first.

        A run whose result no longer counts is needed again. So is one that was made on a machine that rounds unlike
        this one, unless both runs of the pair were made on machines that round alike. Seeds that come after one that
        can't give a gain can't be used, and so are not needed.
        """
        counted = self.counted()
        for seed in self.next_seeds(self.decisions()).get(name, ()):
            pair = [(wanted, counted.get(_row_name(wanted, seed))) for wanted in self.cells[name].values()]
            if _why_no_gain(self.rule.claims[name], pair):
                return
            alike = len({None if row is None else row.arithmetic for _, row in pair}) == 1
            for wanted, row in pair:
                if row is None or (not alike and row.arithmetic != arithmetic()):
                    yield wanted, seed

    def blocked(self, name: str, decision: Decision) -> str:
        """Return why an undecided claim can't be tested any further, with the seed; else an empty text."""
        counted = self.counted()
        for seed in self.next_seeds({name: decision}).get(name, ()):
            pair = [(wanted, counted.get(_row_name(wanted, seed))) for wanted in self.cells[name].values()]
            if why := _why_no_gain(self.rule.claims[name], pair):
                return f"seed {seed}: {why}"
        return ""

    def unproved(self, methods: Collection[Method]) -> Iterator[WantedCell]:
        """Yield a run of each of these methods that has no short test run made by the current code."""
        proofs, here, seen = self.rows.proofs(), arithmetic(), set()
        for wanted in (each for cells in self.cells.values() for each in cells.values()):
            proof = proofs.get(proof_name(*_method(wanted), here))
            stale = proof is None or proof.code != computing_code()
            if stale and _method(wanted) in methods and _method(wanted) not in seen:
                seen.add(_method(wanted))
                yield wanted

    def methods_here(self) -> set[Method]:
        """Return the methods with results of runs that were made with this machine's floating-point arithmetic."""
        return {(row.file, row.method) for row in self.rows.rows().values() if row.arithmetic == arithmetic()}

    def methods_of_unknown_cost(self) -> set[Method]:
        """Return the methods that a claim's next look (test) needs and that have no run to estimate a cost from."""
        wanted = [each for name in self.next_seeds(self.decisions()) for each in self.cells[name].values()]
        return {_method(each) for each in wanted if self.estimate_s(each) is None}

    def _gains(self, claim: Claim, name: str, counted: Mapping[str, CellRow]) -> Iterator[tuple[int, float]]:
        for seed in range(claim.first_seed, claim.first_seed + max(self.rule.looks)):
            pair = [counted.get(_row_name(each, seed)) for each in self.cells[name].values()]
            if pair[0] is None or pair[1] is None or not _comparable(pair[0], pair[1]):
                continue
            better, worse = (row.figure(claim.figure) for row in pair if row is not None)
            if better is not None and worse is not None:
                yield seed, worse - better if claim.fewer else better - worse

    def _is_of(self, row: CellRow, name: str) -> bool:
        return any(_is_run_of(row, wanted) for wanted in self.cells[name].values())


def _method(wanted: WantedCell) -> Method:
    return wanted.file.stem, wanted.method


def _is_run_of(row: CellRow, wanted: WantedCell) -> bool:
    return (row.file, row.sets[:-1]) == (wanted.file.stem, wanted.sets)


def _row_name(wanted: WantedCell, seed: int) -> str:
    return row_name(wanted.file.stem, wanted.cell(seed).sets)


def _why_no_gain(claim: Claim, pair: Sequence[tuple[WantedCell, CellRow | None]]) -> str:
    """Return why a pair of runs can't give a gain, whatever its missing runs will give; else an empty text."""
    made = [(wanted, row) for wanted, row in pair if row is not None]
    for wanted, row in made:
        if row.verdict not in WELL:
            return f"{wanted.label} has the verdict {row.verdict}"
        if row.figure(claim.figure) is None:
            return f"{claim.figure} of {wanted.label} was not measured"
    if len(made) == len(pair) and len({row.partition for _, row in made}) > 1:
        return "the partitions differ"
    return ""


def _comparable(first: CellRow, second: CellRow) -> bool:
    well = all(row.verdict in WELL for row in (first, second))
    return well and first.partition == second.partition and first.arithmetic == second.arithmetic


@dataclass
class BackgroundWork:
    """The background work that makes the runs by which claims are decided.

    Attributes:
        study: the claims, and the results of runs so far.
        out: the folder of the runs.
        jobs: the number of runs at a time.
        until: the time, as by `time.time`, by which all runs must end; None for no limit.
        say: takes a line of text about each event.
        far: the progress of the runs.
        failed: the names of the runs that failed.
    """

    study: ClaimStudy
    out: Path
    jobs: int
    until: float | None
    say: Callable[[str], None]
    far: StudyProgress
    failed: set[str] = field(default_factory=set)

    def work(self) -> None:
        """Make runs until all claims are decided, the budget is spent, or no more runs fit into the time.

        If the code has changed, methods with results are first tested by short runs. So are methods that have never
        run, because the table names the remaining cost of each open claim. Then each claim in turn gets the seeds of
        its next look (test). After that, the claims that are still open get the seeds of the look that follows.
        """
        self._prove(self.study.methods_here() | self.study.methods_of_unknown_cost())
        while any([self._look_further(name) for name in self.study.rule.claims]):
            pass
        for name, decision in self.study.decisions().items():
            self.say(f"{name}: {decision.word} after {decision.seeds} seeds")
        self.say(f"{self.study.spent_s() / 3600:.1f} of {self.study.rule.budget_s / 3600:g} h of CPU time are spent")

    def _prove(self, methods: Collection[Method]) -> None:
        """Make the short test runs of these methods that the current code has not made yet."""
        waiting = [each for each in self.study.unproved(methods) if self._proof_name(each) not in self.failed]
        wanted = {each.proof(self.study.rule.proof_rounds): each for each in waiting}
        self._run(wanted, lambda each: self.out / "proofs" / computing_code(), self._proved)

    def _look_further(self, name: str) -> bool:
        """Make the runs of a claim's next look (test) that the budget permits; return whether any succeeded."""
        missing = list(self.study.missing(name))
        self._prove({_method(each) for each, _ in missing})
        left = self.study.rule.budget_s - self.study.spent_s()
        wanted: dict[Cell, WantedCell] = {}
        for each, seed in missing:
            cost = self.study.estimate_s(each) or 0.0
            failed = row_name(each.file.stem, each.cell(seed).sets) in self.failed
            if not failed and self._fits(each, cost, left):
                left -= cost
                wanted[each.cell(seed)] = each
        return self._run(wanted, lambda each: self.out / "cells" / self._proof(each).event_log_hash[:12], self._ran)

    def _fits(self, wanted: WantedCell, cost: float, left: float) -> bool:
        """Return whether a run may start.

        Its method must have a short test run by the current code, and its `cost` in CPU seconds be within the limits;
        `left` is the rest of the budget.
        """
        return self._proved_here(wanted) and cost <= min(left, MOST_CPU_S)

    def _run(
        self,
        wanted: Mapping[Cell, WantedCell],
        folder_of: Callable[[WantedCell], Path],
        ended: Callable[[WantedCell, CellResult], None],
    ) -> bool:
        found: list[CellResult] = []
        waiting: list[CellJob] = []
        for cell, each in wanted.items():
            known, jobs = look(each.file, [cell], folder_of(each))
            found += known
            waiting += [replace(job, cost_s=self.study.estimate_s(each) or 0.0) for job in jobs]
        self._plan(found, waiting)
        before = self.far.finished
        self.far.total += len(found) + len(waiting)

        def done(ran: CellResult) -> None:
            if ran.failed:
                self.failed.add(row_name(wanted[ran.cell].file.stem, ran.cell.sets))
                self.say(f"failed: {ran.cell.words}: {_why(ran)}")
                return
            self.far.finished += 1
            ended(wanted[ran.cell], ran)

        for ran in found:
            done(ran)
        run_all(waiting, self.jobs, done, self.far, "background", self.until)
        return self.far.finished > before

    def _plan(self, found: Sequence[CellResult], waiting: Sequence[CellJob]) -> None:
        """Write the list of the current runs, finished and waiting, which `netdfl study` reads."""
        paths = {ran.cell: ran.path for ran in found} | {job.cell: job.path for job in waiting}
        cells = {cell: os.path.relpath(path, self.out) for cell, path in paths.items()}
        if waiting:
            plan = StudyPlan("the cells under way", self.jobs, self.out, cells, self.out / "none", is_sweep=False)
            plan.write(self.out / FILE)

    def _proved(self, wanted: WantedCell, ran: CellResult) -> None:
        proof, before = proof_of_run(wanted, ran), self._known_proof(wanted)
        path = self.study.rows.prove(proof)
        if before is not None and before.event_log_hash != proof.event_log_hash:
            self.say(f"{wanted.method}: its rows no longer hold, for the code computes something else: {path}")
        else:
            self.say(f"{wanted.method}: proved by {proof.cpu_s:.0f} s of CPU time: {path}")

    def _ran(self, wanted: WantedCell, ran: CellResult) -> None:
        path = self.study.rows.add(row_of_run(wanted, ran, self._proof(wanted), self.study.scenario_hash(wanted)))
        self.say(f"{ran.cell.words}: {ran.kept.get('cpu_s', 0.0) / 60:.1f} CPU minutes: {path}")

    def _known_proof(self, wanted: WantedCell) -> Proof | None:
        return self.study.rows.proofs().get(proof_name(wanted.file.stem, wanted.method, arithmetic()))

    def _proof(self, wanted: WantedCell) -> Proof:
        proof = self._known_proof(wanted)
        assert proof is not None
        return proof

    def _proved_here(self, wanted: WantedCell) -> bool:
        proof = self._known_proof(wanted)
        return proof is not None and proof.code == computing_code()

    def _proof_name(self, wanted: WantedCell) -> str:
        return row_name(wanted.file.stem, wanted.proof(self.study.rule.proof_rounds).sets)


def _why(ran: CellResult) -> str:
    if ran.exit_code == -signal.SIGXCPU:
        return f"it took more than {MOST_CPU_S // 60} minutes of CPU time"
    return ran.text or f"exit code {ran.exit_code}"


def check_data(study: ClaimStudy) -> None:
    """Raise InputError if a dataset that the runs of a claim need is missing."""
    for cells in study.cells.values():
        for wanted in cells.values():
            if why := missing_data(load(wanted.file, wanted.sets)):
                raise InputError(why)
