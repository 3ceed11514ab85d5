"""The report: one self-contained HTML page about one run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from netdfl.core.types import Json
from netdfl.core.units import format_bytes
from netdfl.record.forms import damaged
from netdfl.record.run import Run, RunDirectory, open_run
from netdfl.report.sections import SECTIONS
from netdfl.report.words import duration, figure, not_delivered, remarks, share, warnings

NO_RESULT = (
    "There is no result.json: the run is still going on, or it was killed; "
    "then the last moments of some nodes may be missing."
)


@dataclass(frozen=True, slots=True)
class Number:
    """One key number at the head of the page."""

    name: str
    value: str
    note: str = ""


def write_report(run_path: Path | str) -> Path:
    """Write `report.html` into a run directory, finished or not, and return its path.

    Raises:
        InputError: there is no run at `run_path`, or its files are damaged.
        RunError: the page can't be written.
    """
    run = open_run(run_path)
    return RunDirectory(run.path).write("report.html", render(run))


def render(run: Run) -> str:
    """Render the page as text. Raises InputError where the run's files are damaged, or of another version."""
    with damaged(run.path, "shown"), run.held():
        return _render(run)


def _render(run: Run) -> str:
    page = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    sections = [made for made in (section(run) for section in SECTIONS) if made is not None]
    head = _head(run.result) if run.finished else _head_without_result(run)
    return page.get_template("page.html").render(head, sections=sections, scenario=run.scenario_text)


def _head(result: Json) -> dict[str, object]:
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items() if version)
    return {
        "title": result["scenario"],
        "subtitle": f"{result['nodes']} nodes, {result['rounds']} rounds of {result['algorithm']} "
        f"in the world {result['world']}, seed {result['seed']}",
        "verdict": result["verdict"],
        "verdict_class": result["verdict"],
        "reasons": [*result["reasons"], *warnings(result), *remarks(result)],
        "numbers": _numbers(result),
        "footer": f"Made by {versions}.",
    }


def _head_without_result(run: Run) -> dict[str, object]:
    fleet = run.fleet
    return {
        "title": run.path.name if fleet is None else fleet["scenario"],
        "subtitle": "" if fleet is None else f"{fleet['rounds_done']} of {fleet['rounds']} rounds done",
        "verdict": "no verdict",
        "verdict_class": "none",
        "reasons": [NO_RESULT],
        "numbers": [],
        "footer": str(run.path),
    }


def _numbers(result: Json) -> list[Number]:
    messages = result["messages"]
    missed = messages["sent"] - messages["delivered"]
    numbers = [
        *_judged(result),
        Number("consensus distance", figure(result["consensus_distance"])),
        Number("sent", format_bytes(result["bytes_sent"]), f"{messages['sent']:,} messages"),
        Number("not delivered", f"{missed:,}", not_delivered(messages) if missed else ""),
        Number("duration", duration(result["duration_s"]), _virtual(result)),
    ]
    if result["weight_sum"] is not None:
        numbers.append(Number("push-sum weight", figure(result["weight_sum"]), "sum of w over n"))
    for target in result["targets"]:
        reached = target["round"] is not None
        note = f"{format_bytes(target['bytes'])}, {duration(target['seconds'])}" if reached else ""
        value = f"round {target['round']}" if reached else "never"
        numbers.append(Number(f"accuracy {share(target['accuracy'])} reached", value, note))
    return numbers


def _judged(result: Json) -> list[Number]:
    """What the average model came to: on a test set, or on a problem whose answer is known."""
    if result.get("error") is not None:
        return [Number("error of the average model", figure(result["error"]), "per coordinate")]
    average, local = result["test_accuracy"]["average_model"], result["test_accuracy"]["mean_local"]
    return [
        Number("test accuracy, average model", share(average["last"]), f"best {share(average['best'])}"),
        Number("test accuracy, local models", share(local), "their mean"),
        Number("test loss", figure(result["test_loss"]), f"train {figure(result['train_loss'])}"),
    ]


def _virtual(result: Json) -> str:
    virtual = result.get("virtual_duration_s")
    return "" if virtual is None else f"{duration(virtual)} of virtual time"
