"""From what a run recorded to its verdict, its result and its page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netdfl.core.errors import InputError, RunError
from netdfl.core.types import Json
from netdfl.record.directory import RunDirectory
from netdfl.record.judge import ExitCode
from netdfl.record.result import RunFacts, summarize
from netdfl.record.run import Run
from netdfl.running.models import TrainedRun, open_run
from netdfl.scenario.explain.link_rules import link_rules
from netdfl.scenario.model.schema import Scenario

if TYPE_CHECKING:
    from torch import nn

MOST_MESSAGES = 12


@dataclass(frozen=True)
class Finished:
    """A run that ended: where it lies, and what it is judged to be."""

    run: TrainedRun
    exit_code: ExitCode

    @property
    def result(self) -> dict[str, Any]:
        """The contents of `result.json`."""
        return self.run.result

    def model(self, node: int | None = None) -> nn.Module:
        """The trained model, the average or that of `node`, as PyTorch has it; see `TrainedRun.model`."""
        return self.run.model(node)

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.run.path

    def __str__(self) -> str:
        """What it came to, as the command prints it."""
        from netdfl.report.live import summary_text

        return summary_text(self.result, self.path)

    def _repr_html_(self) -> str:
        """What it came to, in a notebook."""
        from netdfl.report.notebook import summary_html

        return summary_html(self.result, self.path)


def facts_of(scenario: Scenario, duration_s: float, **more: Any) -> RunFacts:
    """What the judge needs of the scenario, with `more` from the world."""
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
        **more,
    )


def finish(directory: RunDirectory, facts: RunFacts) -> Finished:
    """Judge what was recorded, write `result.json` and the report, of an interrupted run too."""
    found = open_run(directory.path)
    kept_as_lines = found.roll_up()
    with found.held():
        stalls, deadlocks = (_with_messages(found, findings) for findings in (facts.stalls, facts.deadlocks))
        summary = summarize(found, replace(facts, stalls=stalls, deadlocks=deadlocks))
        if kept_as_lines:
            summary.result["kept_as_lines"] = kept_as_lines
        try:
            directory.write_json("result.json", summary.result)
            if directory.page:
                from netdfl.report.html import render

                directory.write("report.html", render(found))
        except (InputError, RunError, OSError) as error:
            why = ": " + "; ".join(summary.judgement.reasons) if summary.judgement.reasons else ""
            raise RunError(f"{error}; the verdict was {summary.judgement.verdict}{why}") from error
    return Finished(found, summary.judgement.exit_code)


def _with_messages(run: Run, findings: Sequence[Json]) -> list[Json]:
    """Each of `findings` with the last messages on the edges of its witness, both ways, before it was found."""
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
