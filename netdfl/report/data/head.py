"""The head of a run's page: its title, its verdict with reasons, and its main metrics."""

from __future__ import annotations

from collections.abc import Iterator

from netdfl.core.units import format_bytes
from netdfl.record.directory import is_held
from netdfl.record.run import Run
from netdfl.report.data.frame import Made
from netdfl.report.words import about_verdict, duration, figure, not_delivered, own_figures, share

GOES_ON = "The run is still going on."
NO_RESULT = (
    "There is no result.json: the run is still going on, or it was killed; "
    "then the last moments of some nodes may be missing."
)


def head(run: Run) -> Made:
    """Return a run's title, its verdict with the reasons, its main metrics, and whether it has ended."""
    return _finished(run.result, run.path.name) if run.finished else _unfinished(run)


def _finished(result: Made, folder: str) -> Made:
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items() if version)
    return {
        "state": "finished",
        "title": result["scenario"],
        "subtitle": f"{result['nodes']} nodes, {result['rounds']} rounds of {result['algorithm']} "
        f"in the world {result['world']}, seed {result['seed']}, in the folder {folder}",
        "verdict": result["verdict"],
        "reasons": about_verdict(result),
        "numbers": [[name, value, note] for name, value, note in _numbers(result)],
        "footer": f"Made by {versions}.",
    }


def _unfinished(run: Run) -> Made:
    fleet = run.fleet
    going_on = is_held(run.path)
    done = "" if fleet is None else f"{fleet['rounds_done']} of {fleet['rounds']} rounds"
    return {
        "state": "running" if going_on else "ended",
        "title": run.path.name if fleet is None else fleet["scenario"],
        "subtitle": f"{done} done" if done else "",
        "as_of": done,
        "verdict": "running" if going_on else "no verdict",
        "reasons": [GOES_ON if going_on else NO_RESULT],
        "numbers": [],
        "footer": run.path.name,
    }


def _numbers(result: Made) -> Iterator[tuple[str, str, str]]:
    """Yield the name, value and a note of each main metric in a run's `result`, as texts."""
    messages = result["messages"]
    missed = messages["sent"] - messages["delivered"]
    yield from _judged(result)
    yield "consensus distance", figure(result["consensus_distance"]), ""
    yield "sent", format_bytes(result["bytes_sent"]), f"{messages['sent']:,} messages"
    yield "not delivered", f"{missed:,}", not_delivered(messages) if missed else ""
    virtual = result.get("virtual_duration_s")
    yield "duration", duration(result["duration_s"]), "" if virtual is None else f"{duration(virtual)} of virtual time"
    if result["weight_sum"] is not None:
        yield "push-sum weight", figure(result["weight_sum"]), "sum of w over n"
    for target in result["targets"]:
        reached = target["round"] is not None
        note = f"{format_bytes(target['bytes'])}, {duration(target['seconds'])}" if reached else ""
        value = f"round {target['round']}" if reached else "never"
        yield f"{_asked(target)} reached", value, note


def _asked(target: Made) -> str:
    if "accuracy" in target:
        return f"accuracy {share(target['accuracy'])}"
    bound = f"≥ {target['at_least']:g}" if "at_least" in target else f"≤ {target['at_most']:g}"
    return f"{target['metric'].replace('_', ' ')} {bound}"


def _judged(result: Made) -> Iterator[tuple[str, str, str]]:
    """Yield metrics of the average model, on a test set or a problem with a known solution: name, value, note."""
    if result.get("error") is not None:
        yield "error of the average model", figure(result["error"]), "per coordinate"
        return
    own = own_figures(result)
    average, local = result["test_accuracy"]["average_model"], result["test_accuracy"]["mean_local"]
    judged = average["last"] is not None or (not own and local is not None)
    if judged:
        yield "test accuracy, average model", share(average["last"]), f"best {share(average['best'])}"
        yield "test accuracy, local models", share(local), "their mean"
    yield from ((name, figure(value), more.removeprefix(", ")) for name, value, more in own)
    if judged or (not own and result["test_loss"] is not None):
        yield "test loss", figure(result["test_loss"]), f"train {figure(result['train_loss'])}"
