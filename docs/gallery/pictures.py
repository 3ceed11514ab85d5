"""The pictures of the gallery, each from a run of a scenario that is shipped: `python docs/gallery/pictures.py`.

`python docs/gallery/pictures.py standstill late_join` draws these alone. All runs are simulated, so they repeat.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

import netdfl

FOLDER = Path(__file__).resolve().parent
SCENARIOS = FOLDER.parents[1] / "scenarios"
WIDTH, HEIGHT = 4.4, 2.5
STYLE: Mapping[str, Any] = {
    "font.size": 8,
    "svg.fonttype": "none",
    "svg.hashsalt": "netdfl",
    "figure.constrained_layout.use": True,
}
Draw = Callable[[Any], Any]


def all_stand(run: netdfl.Run) -> Any:
    """The waits at the end of the run, when nobody goes on."""
    ((at,),) = run.rows("SELECT max(at_s) FROM events")
    return run.plot.waits(at)


PICTURES: Mapping[str, tuple[str, Draw]] = {
    "agreement": ("lecture/1_agreement.yaml", lambda run: run.plot.curve("consensus_distance", log=True)),
    "alone": ("lecture/2_alone_and_together.yaml", lambda run: run.plot.accuracy()),
    "shares": ("quickstart.yaml", lambda run: run.plot.partition()),
    "mass": ("lecture/4_loss.yaml", lambda run: run.plot.curve("weight_sum")),
    "standstill": ("lecture/5_standstill.yaml", all_stand),
    "partition": ("faults/partition_that_holds.yaml", lambda run: run.plot.timeline()),
    "straggler": ("faults/straggler.yaml", lambda run: run.plot.timeline()),
    "churn": ("faults/churn.yaml", lambda run: run.plot.timeline()),
    "late_join": ("faults/late_join.yaml", lambda run: run.plot.timeline()),
    "bursts": ("faults/bursty_loss.yaml", lambda run: run.plot.links()),
}
"""Each picture's scenario, and what is drawn of its run."""


def picture(name: str, folder: Path) -> None:
    """Run the scenario of a picture, and write it as SVG or, where that is larger, as PNG."""
    scenario, draw = PICTURES[name]
    with tempfile.TemporaryDirectory() as out, mpl.rc_context(dict(STYLE)):
        finished = netdfl.run(SCENARIOS / scenario, on="simulated", out=Path(out) / "run")
        figure = draw(finished.run)
        figure.set_size_inches(WIDTH, HEIGHT)
        for axes in figure.axes:
            if axes.get_legend() is not None:
                axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False)
        drawn = folder / f"{name}.svg"
        figure.savefig(drawn, metadata={"Date": None})
        if drawn.stat().st_size > 30_000:
            drawn.unlink()
            figure.savefig(drawn.with_suffix(".png"), dpi=120, metadata={"Software": None})


if __name__ == "__main__":
    for each in sys.argv[1:] or PICTURES:
        picture(each, FOLDER)
        print(each)
