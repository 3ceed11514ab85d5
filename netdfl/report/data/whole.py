"""All that the page shows of one run, put together."""

from __future__ import annotations

from dataclasses import asdict

from netdfl.record.forms import damaged
from netdfl.record.run import Run
from netdfl.report.data.by_node import node_matrices, time_by_node
from netdfl.report.data.columns import Made, shorten
from netdfl.report.data.counted import count_by_moment
from netdfl.report.data.curves import fleet_curves, spreads
from netdfl.report.data.fleet import fleet
from netdfl.report.data.frame import find_frame
from netdfl.report.data.happened import bands, event_counts, events, outages, waits
from netdfl.report.data.head import head
from netdfl.report.data.sections import SECTIONS
from netdfl.report.data.stalled import stalls
from netdfl.report.data.traffic import links, messages, rules

SCHEMA = "netdfl/page/1"
MOST_CLIENTS = 500
MOST_CLASSES = 50


def page_data(run: Run) -> Made:
    """What the page shows of `run`, in plain JSON; what a run has not is empty or None.

    Raises:
        InputError: the run's files are damaged.
    """
    with damaged(run.path, "shown"), run.held():
        frame = find_frame(run)
        traffic = links(run)
        return {
            "schema": SCHEMA,
            "head": head(run),
            "frame": frame.to_json(),
            "counts": count_by_moment(run, frame),
            "fleet": fleet(run, frame),
            "curves": fleet_curves(run, frame),
            "spreads": spreads(run),
            "by_node": node_matrices(run, frame),
            "time_by_node": time_by_node(run, frame),
            "round_times": _round_times(run),
            "links": traffic,
            "rules": rules(run, traffic),
            "messages": messages(run, frame),
            "bands": bands(run),
            "events": events(run),
            "event_counts": event_counts(run),
            "outages": outages(run),
            "waits": waits(run, frame),
            "stalls": stalls(run),
            "partition": _partition(run),
            "sections": [asdict(made) for section in SECTIONS if (made := section(run)) is not None],
            "scenario": run.scenario_text,
        }


def _round_times(run: Run) -> Made | None:
    """The length of each round and the deadline in force, as `result.json` has them."""
    spent = run.result.get("time") if run.finished else None
    if spent is None:
        return None
    found: Made = {key: _plain(values) for key, values in spent["rounds"].items()}
    return found


def _plain(values: list[float | None]) -> list[float | int | None]:
    return shorten([float("nan") if value is None else float(value) for value in values])


def _partition(run: Run) -> Made | None:
    """Who has which data; None where it is not known, or too much to draw."""
    partition = run.partition
    if partition is None or len(partition["counts"]) > MOST_CLIENTS or len(partition["classes"]) > MOST_CLASSES:
        return None
    return {
        "classes": [str(name) for name in partition["classes"]],
        "counts": [[round(number) for number in row] for row in partition["counts"]],
    }
