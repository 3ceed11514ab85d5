"""The ends of the nodes' logs, for a page that has nobody to ask for them."""

from __future__ import annotations

from netdfl.core.errors import InputError
from netdfl.core.files import read_plain
from netdfl.record.run import Run
from netdfl.report.data.columns import Made
from netdfl.report.data.frame import Frame

MOST_NODES, MOST_TEXT = 64, 4000


def logs(run: Run, frame: Frame) -> Made:
    """The last lines of each node's log, of a fleet that is not large; nodes whose log is empty are left out."""
    if frame.num_nodes > MOST_NODES or not (run.path / "logs").is_dir():
        return {}
    found: Made = {}
    for node in frame.nodes:
        try:
            text = read_plain(run.path / "logs" / f"{node:03d}.log")
        except (FileNotFoundError, InputError):
            continue
        if text:
            found[str(node)] = text[-MOST_TEXT:]
    return found
