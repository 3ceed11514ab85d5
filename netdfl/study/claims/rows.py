"""The results of finished runs for claims as small files, one row each, for a person to commit.

ROWS/<cell>.json is one run. ROWS/proofs/<key>.json is a proof: the hash of the event log of a short run of one method,
made by the present code.

A row counts while the proof of its method still has the event log that it had when the row was made. Training, mixing
and compression may have changed by then, but not the numbers that they compute. Event logs of training depend on how a
machine rounds, so each kind of arithmetic has its own proof.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from netdfl.core.errors import InputError, RunError
from netdfl.core.files import PACKAGE, write_whole, writing
from netdfl.core.types import Json
from netdfl.record.evaluated import all_evaluations
from netdfl.record.plain_json import dump_json
from netdfl.record.run import open_run
from netdfl.study.cells import CellResult
from netdfl.study.claims.given import WantedCell

_Form = TypeVar("_Form", "CellRow", "Proof")
SCHEMA = "netdfl/row/1"
COMPUTING = ("algorithms", "compression", "mixing", "training")
"""The packages in which a change of the code makes new short test runs necessary."""


@dataclass(frozen=True, kw_only=True)
class CellRow:
    """The result of one finished run for a claim.

    Attributes:
        cell: the label of the run's cell in the paper's table.
        file: the scenario file.
        method: the method's name.
        sets: the overrides of the scenario.
        seed: the seed.
        rounds: the number of rounds.
        verdict: the verdict of the run.
        course: the average model's test accuracy in each round, as a share.
        train_accuracy: the average model's accuracy on the training data, as a share.
        partition: a hash of the label counts by client.
        event_log_hash: the hash of the run's event log.
        arithmetic: identifies how the machine rounds.
        proof: the hash of the event log of the method's short test run, made by the same code.
        commit: the commit of netdfl's source.
        cpu_s: the CPU time in seconds.
        replaced_cpu_s: the CPU time in seconds of earlier runs whose place in the folder this one took.
        bytes_sent: the bytes of all messages.
        versions: the versions of packages.
        scenario: the hash of the scenario, without its seed; empty in rows that were made before rows had it.
        schema: the version of the file format.
    """

    cell: str
    file: str
    method: str
    sets: tuple[str, ...]
    seed: int
    rounds: int
    verdict: str
    course: tuple[float | None, ...]
    train_accuracy: float | None
    partition: str
    event_log_hash: str
    arithmetic: str
    proof: str
    commit: str
    cpu_s: float
    bytes_sent: int
    versions: Mapping[str, str | None]
    scenario: str = ""
    replaced_cpu_s: float = 0.0
    schema: str = SCHEMA

    @property
    def name(self) -> str:
        """The name of the file with this run's result: a hash of the scenario file and overrides."""
        return row_name(self.file, self.sets)

    def figure(self, name: str) -> float | None:
        """Return the metric `name` in percentage points or in rounds; None if it was not measured.

        If a target accuracy was not reached, the number of rounds to it counts as one more than the run had.
        """
        known = [accuracy for accuracy in self.course if accuracy is not None]
        if not known:
            return None
        if name.startswith("rounds_to_"):
            target = float(name.removeprefix("rounds_to_")) / 100
            reached = (n for n, accuracy in enumerate(self.course, 1) if accuracy is not None and accuracy >= target)
            return float(next(reached, len(self.course) + 1))
        if name == "gap":
            return None if self.train_accuracy is None else 100 * (self.train_accuracy - known[-1])
        tail = known[-5:]
        return 100 * {"last": known[-1], "best": max(known), "mean_last_5": sum(tail) / len(tail)}[name]


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The proof of one method: a short run of it, whose event log shows whether the code computes the same numbers.

    Attributes:
        file: the scenario file.
        method: the method's name.
        sets: the settings that were added to the scenario.
        arithmetic: identifies how the machine rounds.
        event_log_hash: the hash of the short run's event log.
        code: the version of the code that made it.
        commit: the commit of that code.
        cpu_s: the CPU time of the run in seconds.
        replaced_cpu_s: the CPU time in seconds of earlier runs whose place in the folder this one took.
    """

    file: str
    method: str
    sets: tuple[str, ...]
    arithmetic: str
    event_log_hash: str
    code: str
    commit: str
    cpu_s: float
    replaced_cpu_s: float = 0.0

    @property
    def name(self) -> str:
        """The name of the file with this short test run's result."""
        return proof_name(self.file, self.method, self.arithmetic)


def row_name(file: str, sets: tuple[str, ...]) -> str:
    """Return the file name for the result of a run with this scenario file and these overrides."""
    return sha256("\n".join((file, *sets)).encode()).hexdigest()[:16]


def proof_name(file: str, method: str, arithmetic: str) -> str:
    """Return the file name of a method's short test run on machines with this floating-point arithmetic."""
    return f"{file}-{method}-{arithmetic[:8]}"


@dataclass
class RowFolder:
    """The folder with a file for the result of each finished run (a row) and of each short test run (a proof)."""

    path: Path

    def rows(self) -> dict[str, CellRow]:
        """Return the results of all finished runs by name of the file. Raises InputError if a file is damaged."""
        return {row.name: row for row in _read(self.path, CellRow, ("sets", "course"))}

    def proofs(self) -> dict[str, Proof]:
        """Return the results of all short test runs by name of the file. Raises InputError if a file is damaged."""
        return {proof.name: proof for proof in _read(self.path / "proofs", Proof, ("sets",))}

    def counted(self) -> dict[str, CellRow]:
        """Return the results of finished runs that still count, by name of the file.

        They count while their method's short test run has the event log that it had when they were made.
        """
        proofs = self.proofs()
        logs = {name: proof.event_log_hash for name, proof in proofs.items()}
        return {
            name: row
            for name, row in self.rows().items()
            if logs.get(proof_name(row.file, row.method, row.arithmetic), row.proof) == row.proof
        }

    def add(self, row: CellRow) -> Path:
        """Write the file with a finished run's result, completely or not at all, in place of an earlier run's.

        Raises RunError if it can't be written.
        """
        return self._write(self.path / f"{row.name}.json", asdict(_in_place_of(self.rows().get(row.name), row)))

    def prove(self, proof: Proof) -> Path:
        """Write the file with the result of a short test run, completely or not at all, in place of an earlier run's.

        Raises RunError if it can't be written.
        """
        proved = _in_place_of(self.proofs().get(proof.name), proof)
        return self._write(self.path / "proofs" / f"{proof.name}.json", asdict(proved))

    def _write(self, path: Path, value: Json) -> Path:
        with writing(path, RunError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, (dump_json(value) + "\n").encode(), durable=True)
        return path


def _in_place_of(before: _Form | None, new: _Form) -> _Form:
    """Return `new` with the CPU time of all runs that it replaces; `before` counts only if it is another run."""
    if before is None:
        return new
    is_same = (before.event_log_hash, before.cpu_s) == (new.event_log_hash, new.cpu_s)
    return replace(new, replaced_cpu_s=before.replaced_cpu_s + (0.0 if is_same else before.cpu_s))


def _read(folder: Path, form: type[_Form], lists: tuple[str, ...]) -> Iterator[_Form]:
    for file in sorted(folder.glob("*.json")):
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            yield form(**data | {name: tuple(data[name]) for name in lists})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{file} is no row of a finished cell ({error!r}); delete it to run it again") from error


def row_of_run(wanted: WantedCell, ran: CellResult, proof: Proof, scenario: str) -> CellRow:
    """Return the stored form of the result of a cell that has run to its end.

    `proof` is the result of the short test run of its method by the present code, `scenario` the scenario's hash.
    """
    result = ran.result or {}
    found = all_evaluations(open_run(ran.path)).get("test_accuracy", [])
    partition = ran.path / "partition.json"
    return CellRow(
        cell=wanted.label,
        file=wanted.file.stem,
        method=wanted.method,
        sets=ran.cell.sets,
        seed=ran.cell.seed,
        rounds=result["rounds"],
        verdict=result["verdict"],
        course=tuple(each.value for each in found),
        train_accuracy=ran.kept.get("train_accuracy"),
        partition=sha256(partition.read_bytes()).hexdigest()[:16] if partition.exists() else "",
        event_log_hash=result["event_log_hash"],
        arithmetic=proof.arithmetic,
        proof=proof.event_log_hash,
        commit=ran.kept.get("commit", ""),
        cpu_s=round(ran.kept.get("cpu_s", 0.0), 1),
        bytes_sent=result["bytes_sent"],
        versions=result["versions"],
        scenario=scenario,
    )


def proof_of_run(wanted: WantedCell, ran: CellResult) -> Proof:
    """Return the stored form of the result of a finished short test run."""
    result = ran.result or {}
    return Proof(
        file=wanted.file.stem,
        method=wanted.method,
        sets=ran.cell.sets,
        arithmetic=arithmetic(),
        event_log_hash=result["event_log_hash"],
        code=computing_code(),
        commit=ran.kept.get("commit", ""),
        cpu_s=round(ran.kept.get("cpu_s", 0.0), 1),
    )


@cache
def computing_code() -> str:
    """Return a hash of the source code on which computed numbers depend: training, mixing, compression, algorithms."""
    found = sha256()
    for package in COMPUTING:
        for file in sorted((PACKAGE / package).rglob("*.py")):
            found.update(file.relative_to(PACKAGE).as_posix().encode() + b"\0" + file.read_bytes())
    return found.hexdigest()[:16]


@cache
def arithmetic() -> str:
    """Return a hash that identifies how this machine and its libraries round floating-point numbers in training."""
    import torch

    from netdfl.worlds.simulated.arithmetic import exact_arithmetic

    found = sha256(torch.__version__.encode())
    with exact_arithmetic():
        x = torch.sin(torch.arange(1, 40001, dtype=torch.float32) * 0.7).reshape(200, 200)
        for each in (x @ x, x.exp().sum(0), torch.log_softmax(x, 1), torch.add(x, x.T, alpha=0.3)):
            found.update(each.numpy().tobytes())
    return found.hexdigest()[:16]
