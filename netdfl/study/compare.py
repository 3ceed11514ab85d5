"""A published table beside netdfl's measurements: its rows, as text, CSV, Markdown and JSON."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from io import StringIO
from pathlib import Path
from statistics import fmean, stdev

from netdfl.core.errors import RunError
from netdfl.core.files import write_whole, writing
from netdfl.core.types import Json
from netdfl.record.plain_json import dump_json
from netdfl.study.cells import CellResult
from netdfl.study.outcome import WARNED
from netdfl.study.summary import markdown_table
from netdfl.study.trials import FigureSetup

SCHEMA = "netdfl/reproduction/1"


@dataclass(frozen=True, kw_only=True)
class ComparisonRow:
    """A published number and its measurement; accuracies are in percent.

    `measured` is a mean over seeds. For an accuracy, each seed gives the mean over the run's last five evaluations; for
    `rounds_to_*`, the number of rounds. `std` is the standard deviation over seeds. `last` and `best` are means over
    seeds of the last and the best evaluation. `difference` is measured minus published. Runs that did not pass are not
    counted, and are named in `note`. `beyond` is true if the printed number is a limit that was not reached. The
    metrics `train_acc` and `gap` are about the last average model. `commits` are commits of netdfl's source.
    """

    cell: str
    dataset: str
    partition: str
    topology: str
    algorithm: str
    compressor: str
    metric: str
    printed_note: str
    published: float
    beyond: bool
    published_std: float | None
    measured: float | None = None
    std: float | None = None
    seeds: tuple[int, ...] = ()
    last: float | None = None
    best: float | None = None
    difference: float | None = None
    rounds: int | None = None
    rounds_of_paper: int | None = None
    note: str = ""
    commits: tuple[str, ...] = ()
    runs: tuple[Json, ...] = ()


def row_of(
    trial: FigureSetup, ran: Sequence[CellResult], rounds_of_paper: int | None = None, why_not: str = ""
) -> ComparisonRow:
    """Return the row of the published number `trial`, measured by the runs `ran`, which may be empty.

    `why_not` is the reason why there are no runs.
    """
    figure = trial.figure
    row = ComparisonRow(
        cell=trial.label,
        dataset=figure.dataset,
        partition=figure.partition,
        topology=figure.topology,
        algorithm=figure.algorithm,
        compressor=figure.compressor,
        metric=figure.metric,
        printed_note=figure.notes,
        published=figure.value,
        beyond=figure.beyond,
        published_std=figure.std,
        rounds_of_paper=rounds_of_paper,
        note=trial.why_not or why_not,
    )
    return _measured(row, ran) if ran else row


def _measured(row: ComparisonRow, ran: Sequence[CellResult]) -> ComparisonRow:
    notes = [_why_not_counted(each) for each in ran]
    counted = [each for each, note in zip(ran, notes, strict=True) if not note]
    values = {each.cell.seed: _value(row.metric, each) for each in counted}
    notes += [f"seed {seed}: {_why_missing(row.metric)}" for seed, value in values.items() if value is None]
    notes += [f"seed {each.cell.seed}: {text}" for each in counted for text in _warned(each)]
    numbers = [value for value in values.values() if value is not None]
    whole = bool(numbers) and len(numbers) == len(values)
    measured = fmean(numbers) if whole else None
    is_accuracy = row.metric == "test_acc"
    return replace(
        row,
        measured=measured,
        std=stdev(numbers) if whole and len(numbers) > 1 else None,
        seeds=tuple(values),
        last=_mean(counted, "last") if is_accuracy else None,
        best=_mean(counted, "best") if is_accuracy else None,
        difference=None if measured is None or row.beyond else measured - row.published,
        rounds=next((each.result["rounds"] for each in counted if each.result), None),
        note="; ".join(filter(None, notes)),
        commits=tuple(dict.fromkeys(filter(None, (each.kept.get("commit") for each in counted)))),
        runs=tuple(map(_run, ran)),
    )


def _why_not_counted(ran: CellResult) -> str:
    why = ran.why if ran.failed else ran.not_passed
    return f"seed {ran.cell.seed}: {why}" if why else ""


def _warned(ran: CellResult) -> list[str]:
    """Return the texts of a run's warnings that make its measurement doubtful."""
    return [each["text"] for each in (ran.result or {}).get("warnings", ()) if each["kind"] in WARNED]


def _why_missing(metric: str) -> str:
    return "not reached" if metric.startswith("rounds_to_") else "run before training figures were kept"


def _value(metric: str, ran: CellResult) -> float | None:
    """Return a run's measurement of a metric; None if a target was not reached or the metric was not stored."""
    result = ran.result or {}
    if metric in ("train_acc", "gap"):
        trained = ran.kept.get("train_accuracy")
        if trained is None:
            return None
        tested = float(result["test_accuracy"]["average_model"]["last"]) if metric == "gap" else 0.0
        return 100 * (float(trained) - tested)
    if metric.startswith("rounds_to_"):
        target = float(metric.removeprefix("rounds_to_")) / 100
        reached = next(t["round"] for t in result["targets"] if abs(t.get("accuracy", -1) - target) < 1e-9)
        return None if reached is None else float(reached + 1)
    return 100 * float(result["test_accuracy"]["average_model"]["mean_last_5"])


def _mean(ran: Sequence[CellResult], which: str) -> float | None:
    found = [100 * each.result["test_accuracy"]["average_model"][which] for each in ran if each.result]
    return fmean(found) if found else None


def _run(ran: CellResult) -> Mapping[str, object]:
    result = ran.result or {}
    kept = ("verdict", "reasons", "test_accuracy", "bytes_sent", "duration_s", "event_log_hash", "versions")
    return {"seed": ran.cell.seed, "run": ran.path.name, "sets": ran.cell.sets, **ran.kept} | {
        name: result[name] for name in kept if name in result
    }


@dataclass(frozen=True)
class Comparison:
    """A published table beside its measurements.

    `rounds` and `sets` are the number of rounds and the overrides that differ from the paper's settings.
    """

    paper: str
    table: str
    rounds: int | None
    sets: tuple[str, ...]
    rows: tuple[ComparisonRow, ...]

    @property
    def title(self) -> str:
        """The title: the paper and table, and the differences from the paper's settings."""
        changed = [f"rounds={self.rounds}"] * (self.rounds is not None) + list(self.sets)
        return f"{self.paper} {self.table}" + (f", not as printed: {', '.join(changed)}" if changed else "")

    @property
    def measured(self) -> list[ComparisonRow]:
        """The rows that have been measured by runs."""
        return [row for row in self.rows if row.runs]

    @property
    def missing(self) -> dict[str, list[str]]:
        """The labels of cells without runs, by reason."""
        found: dict[str, list[str]] = {}
        for row in self.rows:
            if not row.runs:
                found.setdefault(row.note or "not run yet", []).append(row.cell)
        return found

    def write(self, stem: Path) -> None:
        """Write STEM.json, STEM.csv and STEM.md. Raises RunError if a file can't be written."""
        texts = {"json": self._json(), "csv": self._csv(), "md": self.markdown()}
        with writing(f"{stem}.*", RunError, "; the runs are kept"):
            stem.parent.mkdir(parents=True, exist_ok=True)
            for ending, text in texts.items():
                write_whole(stem.with_name(f"{stem.name}.{ending}"), text.encode())

    def _json(self) -> str:
        head = {"schema": SCHEMA, "paper": self.paper, "table": self.table, "rounds": self.rounds, "sets": self.sets}
        return dump_json({**head, "rows": [asdict(row) for row in self.rows]}, indent=1) + "\n"

    def _csv(self) -> str:
        out = StringIO()
        names = [name for name in ComparisonRow.__dataclass_fields__ if name != "runs"]
        table = csv.writer(out, lineterminator="\n")
        table.writerow(names)
        for row in self.rows:
            values = [getattr(row, name) for name in names]
            table.writerow([" ".join(map(str, v)) if isinstance(v, tuple) else v for v in values])
        return out.getvalue()

    def markdown(self) -> str:
        """Return the table in Markdown, followed by the missing cells with reasons."""
        text = f"# {self.title}\n\n" + markdown_table(HEADINGS, map(shown, self.measured))
        for reason, cells in self.missing.items():
            text += f"\nNot measured, {reason}: {', '.join(cells)}\n"
        return text


HEADINGS = ("cell", "published", "measured", "diff", "last", "best", "seeds", "rounds", "commit", "note")
TERMINAL = ("cell", "published", "measured", "diff", "seeds", "rounds", "note")
WORDS = ("cell", "note")
LISTS = ("seeds", "commits", "runs")
"""Columns of the table whose cells hold several values."""


def shown(row: ComparisonRow) -> list[str]:
    """Return the row's values as text, in the order of `HEADINGS`."""
    digits = 0 if row.metric.startswith("rounds_to_") else 2
    return [
        row.cell,
        (">" if row.beyond else "") + _number(row.published, row.published_std, digits),
        _number(row.measured, row.std, digits),
        "" if row.difference is None else f"{row.difference:+.{digits}f}",
        _number(row.last, None, digits),
        _number(row.best, None, digits),
        " ".join(map(str, row.seeds)),
        "" if row.rounds is None else f"{row.rounds}/{row.rounds_of_paper}",
        " ".join(row.commits),
        row.note,
    ]


def _number(value: float | None, std: float | None, digits: int) -> str:
    if value is None:
        return ""
    return f"{value:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")
