"""The judging of a finished run: its verdict, its result and its page."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netdfl.core.errors import InputError, RunError
from netdfl.core.no_memory import is_of_memory, lack_of_memory
from netdfl.core.renamed import renamed
from netdfl.core.types import Json
from netdfl.record.directory import RunDirectory
from netdfl.record.forms import RESULT, read_form
from netdfl.record.judge import ExitCode, Judgement
from netdfl.record.observations import RunFacts
from netdfl.record.result import Summary, summarize, unjudged
from netdfl.record.run import Run
from netdfl.running.models import TrainedRun, open_run
from netdfl.scenario.build import shared_rates
from netdfl.scenario.explain.link_rules import link_rules
from netdfl.scenario.model.schema import Scenario

if TYPE_CHECKING:
    from torch import nn

MOST_MESSAGES = 12
NO_MEMORY = "no memory was left"


@dataclass(frozen=True)
class FinishedRun:
    """A finished run, with the exit code of its verdict."""

    run: TrainedRun
    exit_code: ExitCode

    @property
    def result(self) -> dict[str, Any]:
        """The contents of `result.json`."""
        return self.run.result

    def model(self, node: int | None = None) -> nn.Module:
        """Return the trained model, the average or the model of `node`."""
        return self.run.model(node)

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.run.path

    def __str__(self) -> str:
        """Return the summary that `netdfl run` prints."""
        from netdfl.report.live import summary_text

        return summary_text(self.result, self.path)

    def _repr_html_(self) -> str:
        """Return the summary as HTML for a notebook."""
        from netdfl.report.notebook import summary_html

        return summary_html(self.result, self.path)


def facts_of(scenario: Scenario, duration_s: float, **more: Any) -> RunFacts:
    """Return the facts by which a run is judged: some from its scenario, and `more`, which the run itself shows."""
    return RunFacts(
        scenario=scenario.name,
        seed=scenario.seed,
        world=scenario.world.kind,
        algorithm=scenario.algorithm.kind,
        nodes=scenario.nodes,
        rounds=scenario.rounds,
        duration_s=duration_s,
        expect=scenario.expect.entries(),
        targets=[each if isinstance(each, float) else each.model_dump() for each in scenario.report.targets],
        tags=scenario.report.tags,
        delivery=scenario.delivery.kind,
        link_rules=link_rules(scenario),
        shared_rates=shared_rates(scenario),
        **more,
    )


def finish(directory: RunDirectory, facts: RunFacts) -> FinishedRun:
    """Judge the run from its record; write `result.json` and the report, also after an interruption.

    If memory runs out meanwhile, the run counts as broken, and `result.json` says so.
    """
    with ExitStack() as holding:
        try:
            found, summary = _judged(directory, facts, holding)
        except Exception as error:
            if not is_of_memory(error):
                raise
            summary, raised = None, lack_of_memory(error)
        if summary is not None:
            if directory.page:
                with _telling(summary.judgement):
                    _write_page(directory, found)
            return FinishedRun(found, summary.judgement.exit_code)
    return _without_memory(directory, facts, raised)  # what the record and the error held is free by now


def _judged(directory: RunDirectory, facts: RunFacts, holding: ExitStack) -> tuple[TrainedRun, Summary]:
    """Judge the run and write `result.json`; keep the run's tables in memory for its page until `holding` is closed."""
    found = open_run(directory.path)
    kept_as_lines = found.roll_up()
    holding.enter_context(found.held())
    stalls, deadlocks = (_with_messages(found, findings) for findings in (facts.stalls, facts.deadlocks))
    summary = summarize(found, replace(facts, stalls=stalls, deadlocks=deadlocks))
    if kept_as_lines:
        summary.result["kept_as_lines"] = kept_as_lines
    with _telling(summary.judgement):
        directory.write_json("result.json", summary.result)
    return found, summary


def _without_memory(directory: RunDirectory, facts: RunFacts, raised: str) -> FinishedRun:
    """Write the result of a run that could not be judged for lack of memory. Raises RunError if that fails.

    `raised` is the text of the error.
    """
    gc.collect()
    again = f"`netdfl run --resume {directory.path}`, or collect it again"
    why = f"{NO_MEMORY} to judge the run, whose record is kept ({raised}); once some is free: {again}"
    try:
        status = read_form(directory.path / "fleet.json", RESULT)
        summary = unjudged(facts, why, status or {})
        directory.write_json("result.json", summary.result)
        return FinishedRun(open_run(directory.path), summary.judgement.exit_code)
    except MemoryError as error:
        raise RunError(f"{why}, in {directory.path}") from error


def _write_page(directory: RunDirectory, found: TrainedRun) -> None:
    from netdfl.report.html import render

    try:
        directory.write("report.html", render(found))
    except Exception as error:
        if not is_of_memory(error):
            raise
        raise RunError(f"{NO_MEMORY} to write report.html; `netdfl report {directory.path}` writes it") from error


@contextmanager
def _telling(judgement: Judgement) -> Iterator[None]:
    """Raise a RunError whose text includes the verdict, if a file can't be written inside the context."""
    try:
        yield
    except (InputError, RunError, OSError) as error:
        why = ": " + "; ".join(judgement.reasons) if judgement.reasons else ""
        raise RunError(f"{error}; the verdict was {judgement.verdict}{why}") from error


def _with_messages(run: Run, findings: Sequence[Json]) -> list[Json]:
    """Return `findings` (diagnosed stalls), each with the last messages before the stall on the edges that prove it.

    Messages in both directions of these edges are included.
    """
    return [{**finding, "messages": _last(run, finding)} for finding in findings]


def _last(run: Run, finding: Json) -> list[Json]:
    edges = [way for a, b in finding["witness"] for way in ((a, b), (b, a))]
    if not edges:
        return []
    srcs, dsts = zip(*edges, strict=True)
    columns = ("src", "dst", "kind", "round", "step", "attempt", "sent_s", "arrived_s", "fate")
    rows = run.rows(
        f"SELECT {', '.join(columns)} FROM messages "
        "WHERE (src, dst) IN (SELECT unnest($srcs), unnest($dsts)) "
        "AND kind NOT IN ('heartbeat', 'probe', 'query', 'status') "
        "AND sent_s <= $found_s ORDER BY sent_s DESC, src, dst, round DESC, step DESC, attempt DESC LIMIT $most",
        {"srcs": srcs, "dsts": dsts, "found_s": finding["found_s"], "most": MOST_MESSAGES},
    )
    return [dict(zip(columns, row, strict=True)) for row in reversed(rows)]


if not TYPE_CHECKING:
    __getattr__ = renamed(__name__, {"Finished": "FinishedRun"})
