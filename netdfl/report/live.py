"""The display of a running fleet: a panel on a terminal, plain lines elsewhere, and a summary at the end."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from netdfl.core.fates import NOT_DELIVERED, FateClass, MessageCounts
from netdfl.core.types import Json
from netdfl.core.units import format_bytes
from netdfl.record.status import FleetStatus
from netdfl.report.panel import Curves, panel
from netdfl.report.words import about_verdict, duration, figure, not_delivered, own_figures, round_words, share

COLORS = {"pass": "bold green", "done": "bold blue", "fail": "bold red", "unknown": "bold yellow"}
LEAST_GAP_S = 1.0
VALUES = 13
"""The column of the terminal at which values begin in the summary of a run."""
MISHAPS = tuple(name for name in NOT_DELIVERED if name != FateClass.UNFINISHED)


class PlainView:
    """A live view that prints one line per evaluation, at most one per second. It is a context manager."""

    def __init__(self, console: Console) -> None:
        """Prepare to print to `console`."""
        self.console = console
        self._evaluated = -1
        self._printed_s = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def update(self, status: FleetStatus) -> None:
        """Print a line if there is a new evaluation and the last line is at least a second old."""
        round = -1 if status.evaluation is None else status.evaluation.round
        if round == self._evaluated or status.elapsed_s - self._printed_s < LEAST_GAP_S:
            return
        self._evaluated, self._printed_s = round, status.elapsed_s
        self.note(
            f"{round + 1} of {status.rounds} rounds, " + ", ".join(f"{k} {v}" for k, v in describe(status).items())
        )

    def note(self, text: str) -> None:
        """Print the note `text`, wrapped on a terminal."""
        say(self.console, text)

    def summary(self, result: Json, run_path: Path) -> None:
        """Print a run's verdict, its main metrics and the paths of its files, after the view was closed."""
        head, lines, rows = summary(result, run_path)
        verdict = result["verdict"]
        say(self.console, f"{verdict}  {head}", first=(verdict, COLORS[verdict]))
        for line in lines:
            say(self.console, f"  {line}", hang=2)
        for row in _rows(rows):
            say(self.console, row, hang=VALUES)


class LiveView(PlainView):
    """A live view that prints notes, and below them a panel about the running fleet that is redrawn in place."""

    def __init__(self, console: Console) -> None:
        """Prepare to draw on `console`, a terminal."""
        super().__init__(console)
        self._live = Live(console=console, transient=True, auto_refresh=False)
        self._curves = Curves()
        self._width = console.width
        self._lengths: list[int] = []

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._live.stop()

    def update(self, status: FleetStatus) -> None:
        """Redraw the panel with the fleet's present `status`."""
        self._curves.add(status.evaluation)
        drawn = panel(status, describe(status), self._curves)
        self._fold()
        lines = self.console.render_lines(drawn, self.console.options, pad=False)
        self._lengths = [sum(segment.cell_length for segment in line) for line in lines]
        self._live.update(drawn, refresh=True)

    def _fold(self) -> None:
        """Adapt to a terminal that became narrower and wrapped the drawn lines, so that all of them can be erased."""
        width = self.console.width
        if width < self._width and self._lengths:
            rows = sum(max(1, -(-length // width)) for length in self._lengths)
            self._live._live_render._shape = (width, rows)
        self._width = width


def open_view(console: Console | None = None) -> PlainView:
    """Choose the view for `console` (the standard output by default): live on a terminal, else plain."""
    console = console or Console()
    return LiveView(console) if console.is_terminal else PlainView(console)


def describe(status: FleetStatus) -> dict[str, str]:
    """Return the main facts about a running fleet as text; unknown ones are left out."""
    told: dict[str, str] = {}
    if (evaluation := status.evaluation) is not None:
        if evaluation.test_accuracy is not None:
            told["accuracy"] = share(evaluation.test_accuracy)
        if evaluation.mean_local_accuracy is not None:
            told["local models"] = share(evaluation.mean_local_accuracy)
        told["consensus distance"] = figure(evaluation.consensus_distance)
    told["sent"] = format_bytes(status.bytes_sent)
    told["messages"] = _messages(status.messages)
    if (slowest := status.slowest) is not None:
        told["slowest"] = f"node {slowest.node} (round {slowest.round})"
    if status.left_s is not None:
        told["left"] = duration(status.left_s)
    return told


def _messages(counts: MessageCounts) -> str:
    """Return as text how many messages were sent, and how many of these were not delivered, by what became of them.

    Messages in flight are not among the latter.
    """
    told = [f"{count:,} {name}" for name, count in asdict(counts).items() if name in MISHAPS and count]
    return ", ".join([f"{counts.sent:,} sent", *told])


def summary_text(result: Json, run_path: Path) -> str:
    """Return the summary of a finished run as text without colors."""
    head, lines, rows = summary(result, run_path)
    return "\n".join([f"{result['verdict']}  {head}", *(f"  {line}" for line in lines), *_rows(rows)])


def _rows(rows: dict[str, str]) -> list[str]:
    return [f"  {name}".ljust(VALUES - 1) + f" {value}" for name, value in rows.items()]


def summary(result: Json, run_path: Path) -> tuple[str, list[str], dict[str, str]]:
    """Return a headline for a run, reasons and remarks about its verdict, and its main metrics by name, as texts."""
    messages = result["messages"]
    head = f"{result['scenario']}: {result['nodes']} nodes, {result['rounds']} rounds of {result['algorithm']}"
    rows = _judged(result) | {
        "consensus": f"distance {figure(result['consensus_distance'])}",
        "sent": f"{format_bytes(result['bytes_sent'])} in {messages['sent']:,} messages; "
        f"not delivered: {not_delivered(messages)}",
        **_times(result),
        "run": str(run_path),
    }
    if (page := run_path / "report.html").exists():
        rows["report"] = str(page)
    return f"{head}, {_took(result)}", about_verdict(result), rows


def _judged(result: Json) -> dict[str, str]:
    """Return the last metrics of a run's models as texts, by name; metrics that were never measured are left out."""
    if result.get("error") is not None:
        return {"error": f"{figure(result['error'])} from the average model to the answer, per coordinate"}
    own = {name: f"{figure(value)} average model{more}" for name, value, more in own_figures(result)}
    average, local = result["test_accuracy"]["average_model"], result["test_accuracy"]["mean_local"]
    personal = result["test_accuracy"].get("mean_personal")
    told = (
        f"{share(average['last'])} average model (best {share(average['best'])}), {share(local)} mean of local models"
    )
    if average["last"] is not None:
        return {"accuracy": told} | own
    if own or personal is None:
        return own or ({} if local is None else {"accuracy": told})
    return {"accuracy": f"{share(personal)} mean of nodes' models, each on its own held-out data"}


def _times(result: Json) -> dict[str, str]:
    """Return texts on what the run's time was spent on, and on the length of rounds; empty if that is unknown."""
    spent = result.get("time")
    if spent is None:
        return {}
    told = {"time": spent["text"], "a round": round_words(spent)}
    return {key: text for key, text in told.items() if text}


def _took(result: Json) -> str:
    """Return the duration of a run as text; for a simulated run, its virtual time too."""
    virtual = result.get("virtual_duration_s")
    real = duration(result["duration_s"])
    return real if virtual is None else f"{real}; {duration(virtual)} in virtual time"


def say(console: Console, text: str, *, first: tuple[str, str] | None = None, hang: int = 0) -> None:
    """Print text without markup or highlighting, on a terminal wrapped between words but never within a path.

    `first` has the text's first letters and the style in which they are printed; later lines begin with `hang` blanks.
    """
    shown = fold(text, console.width, hang) if console.is_terminal else text
    styled = Text(shown)
    if first is not None:
        styled.stylize(first[1], 0, len(first[0]))
    console.print(styled, markup=False, highlight=False, soft_wrap=True)


def fold(text: str, width: int, hang: int = 0) -> str:
    """Wrap the lines of `text` between words at `width`; a word longer than `width` is not broken.

    Continued lines begin with `hang` blanks.
    """
    folded = partial(
        wrap,
        width=max(width, hang + 10),
        subsequent_indent=" " * hang,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
        replace_whitespace=False,
    )
    return "\n".join("\n".join(folded(line)) for line in text.split("\n"))
