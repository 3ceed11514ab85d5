"""The terminal panel of a running fleet: bars, small text curves, waiting nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from netdfl.record.status import EvaluationStatus, FleetStatus, WaitingStatus
from netdfl.report.words import duration, figure, share, some

BLOCKS = "▁▂▃▄▅▆▇█"
MOST_POINTS = 32
MOST_NAMED = 6
KEYS = "Ctrl-C ends the run, judges and keeps it; a second one leaves at once"


@dataclass
class Curves:
    """The evaluations of a run's models so far, to be drawn as small text curves of accuracy and loss."""

    seen: list[EvaluationStatus] = field(default_factory=list)

    def add(self, evaluation: EvaluationStatus | None) -> None:
        """Add the evaluation of a round, unless it is the last one that was added."""
        if evaluation is not None and (not self.seen or self.seen[-1].round != evaluation.round):
            self.seen.append(evaluation)

    def beside(self, told: dict[str, str]) -> dict[str, str]:
        """Return curves of accuracy and loss that have two values or more, then the texts in `told`, all by name.

        A curve replaces the text of the same name.
        """
        accuracy = [each.test_accuracy for each in self.seen if each.test_accuracy is not None]
        loss = [each.test_loss for each in self.seen if each.test_loss is not None]
        found = [("accuracy", accuracy, share), ("loss", loss, figure)]
        drawn = {
            name: f"{words(values[-1]):<7} {sparkline(values)} from {words(values[0])}"
            for name, values, words in found
            if len(values) > 1
        }
        return drawn | {name: value for name, value in told.items() if name not in drawn}


def sparkline(values: Sequence[float], width: int = MOST_POINTS) -> str:
    """Return a text curve of at most `width` characters, scaled from the lowest to the highest value.

    A blank stands for a value that is not finite.
    """
    count = min(len(values), width)
    shown = [values[(place + 1) * len(values) // count - 1] for place in range(count)]  # the last that falls on a place
    finite = [value for value in shown if math.isfinite(value)]
    if not finite:
        return " " * len(shown)
    low, span = min(finite), max(finite) - min(finite)
    top = len(BLOCKS) - 1
    return "".join(
        " " if not math.isfinite(value) else BLOCKS[round(top * (value - low) / span) if span else 0] for value in shown
    )


def panel(status: FleetStatus, told: dict[str, str], curves: Curves | None = None) -> RenderableType:
    """Lay out a fleet's status for a terminal: title, progress bar, `curves`, the texts in `told`, waiting nodes, keys.

    `told` has a text for each name, such as the number of messages sent. Each part is one line, or some lines, which
    are cut at the terminal's width.
    """
    title = Text.assemble((status.scenario, "bold"), f"  {status.algorithm}, {len(status.nodes)} nodes, {status.world}")
    bar = Table.grid(padding=(0, 1))
    done = Text(f"{status.rounds_done} of {status.rounds} rounds  {duration(status.elapsed_s)}")
    done.no_wrap, done.overflow = True, "ellipsis"
    bar.add_row(ProgressBar(total=status.rounds, completed=status.rounds_done, width=40), done)
    rows = list((told if curves is None else curves.beside(told)).items())
    rows += [(f"node {wait.node}", waits(wait, status.elapsed_s)) for wait in status.waiting]
    width = max((len(name) for name, _ in rows), default=0)
    lines = [Text.assemble((name.ljust(width), "dim"), "  ", value) for name, value in rows]
    lines.append(Text(KEYS, style="dim"))
    for line in (title, *lines):
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(title, bar, *lines)


def waits(wait: WaitingStatus, now_s: float) -> str:
    """Return a node's wait for messages as text: `waits in round 7 for 2, 5, since 4.2 s (1.3 s)`.

    It names the awaited nodes, the begin of the wait, and its length until `now_s`, both in seconds of the run.
    """
    named = some(wait.awaited, MOST_NAMED) or "whoever sends"
    lasts = duration(max(0.0, now_s - wait.since_s))
    return f"waits in round {wait.round} for {named}, since {duration(wait.since_s)} ({lasts})"
