"""All data of one run's HTML page, as one JSON object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from netdfl.core.errors import InputError
from netdfl.record.forms import damaged
from netdfl.record.kept_blame import kept_blame
from netdfl.record.run import Run
from netdfl.report.data.figures import fleet_curves, node_matrices, spreads, time_by_node
from netdfl.report.data.fleet import fleet
from netdfl.report.data.frame import Frame, Made, find_frame, shorten
from netdfl.report.data.happened import bands, event_counts, events, logs, outages, waits
from netdfl.report.data.head import head
from netdfl.report.data.resources import resources
from netdfl.report.data.sections import SECTIONS
from netdfl.report.data.stalled import stalls
from netdfl.report.data.traffic import count_by_moment, links, messages, rules
from netdfl.report.data.underlay import underlay

SCHEMA = "netdfl/page/1"
MOST_CLIENTS = 500
MOST_CLASSES = 50


def page_data(run: Run, *, tolerant: bool = False) -> Made:
    """Return the data of the HTML page of `run`, in plain JSON; missing parts are empty or None.

    If `tolerant`, a part whose files are damaged counts as missing, and `troubles` says why.

    Raises:
        InputError: the run's files are damaged; if `tolerant`, only files that all parts need.
    """
    with damaged(run.path, "shown"), run.held():
        frame = find_frame(run)
        made: Made = {"schema": SCHEMA, "frame": frame.to_json()}
        troubles: dict[str, None] = {}
        for name, (make, empty) in _parts(run, frame, made).items():
            try:
                with damaged(run.path, "shown"):
                    made[name] = make()
            except InputError as error:
                if not tolerant:
                    raise
                made[name] = empty
                troubles[str(error)] = None
        return made | {"troubles": list(troubles)}


def _parts(run: Run, frame: Frame, made: Made) -> dict[str, tuple[Callable[[], object], object]]:
    """Return for each part of the page's data the function that reads it, and the value if its files are damaged.

    Some functions use parts that were put into `made` before.
    """
    unread = {"title": run.path.name, "verdict": "can't be read", "state": "ended", "subtitle": "", "footer": ""}
    none: Made = {"src": [], "dst": []}
    zeros, places = [0] * len(frame.moments), [0] * len(frame.nodes)
    bare = none | {"x": places, "y": places, "server": None, "died": [], "words": "", "degrees": [], "varies": False}
    return {
        "head": (lambda: head(run), unread | {"reasons": [], "numbers": []}),
        "counts": (lambda: count_by_moment(run, frame), {"sent": zeros, "nbytes": zeros}),
        "fleet": (lambda: fleet(run, frame), bare),
        "curves": (lambda: fleet_curves(run, frame), {}),
        "spreads": (lambda: spreads(run), {}),
        "by_node": (lambda: node_matrices(run, frame), {}),
        "time_by_node": (lambda: time_by_node(run, frame), None),
        "round_times": (lambda: _round_times(run), None),
        "underlay": (lambda: underlay(run, frame), None),
        "links": (lambda: links(run), none | {"sent": [], "nbytes": [], "total": 0}),
        "messages": (lambda: messages(run, frame), none | {"every": 1, "total": 0}),
        "bands": (lambda: bands(run), []),
        "events": (lambda: events(run), []),
        "event_counts": (lambda: event_counts(run), {}),
        "outages": (lambda: outages(run), []),
        "waits": (lambda: waits(run, frame), {"node": [], "all": True}),
        "stalls": (lambda: stalls(run), []),
        "blame": (lambda: kept_blame(run), None),
        "resources": (lambda: resources(run), None),
        "partition": (lambda: _partition(run), None),
        "logs": (lambda: logs(run, frame), {}),
        "sections": (lambda: [asdict(one) for section in SECTIONS if (one := section(run)) is not None], []),
        "scenario": (lambda: run.scenario_text, ""),
        "rules": (lambda: rules(run, made["links"]), []),
    }


def _round_times(run: Run) -> Made | None:
    """Return the length of each round and the deadline for waits that applied in it, as in `result.json`."""
    spent = run.result.get("time") if run.finished else None
    rounds = {} if spent is None else spent["rounds"]
    return {key: shorten(values) for key, values in rounds.items()} if rounds.get("median_s") else None


def _partition(run: Run) -> Made | None:
    """Return the number of samples by class at each client; None if it is unknown, or too large to draw."""
    partition = run.partition
    if partition is None or len(partition["counts"]) > MOST_CLIENTS or len(partition["classes"]) > MOST_CLASSES:
        return None
    return {
        "classes": [str(name) for name in partition["classes"]],
        "counts": [[round(number) for number in row] for row in partition["counts"]],
    }
