"""The live view: one line per evaluation without a terminal, a panel on one, a summary at the end."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from netdfl.record.run import Run
from netdfl.record.status import EvaluationStatus, FleetStatus, Phase, WaitingStatus
from netdfl.report.live import LiveView, PlainView, describe, open_view, say
from netdfl.report.panel import KEYS, panel, sparkline
from netdfl.report.words import duration


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=80)


def printed(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def at(status: FleetStatus, elapsed_s: float, round: int) -> FleetStatus:
    return replace(status, elapsed_s=elapsed_s, evaluation=EvaluationStatus(round, test_accuracy=round / 100))


def test_a_plain_line_says_it_all(console: Console, status: FleetStatus) -> None:
    with open_view(console) as view:
        view.update(status)
    assert printed(console) == [
        "20 of 50 rounds, accuracy 71.2%, local models 65.0%, consensus distance 0.0123, sent 12.3 MB, "
        "messages 3,456 sent, 12 lost, 21 late, slowest node 0 (round 20), left 12 s"
    ]


def test_plain_lines_come_once_per_evaluation_and_at_most_every_second(console: Console, status: FleetStatus) -> None:
    view = PlainView(console)
    view.update(replace(status, evaluation=None))
    for elapsed_s, round in ((1.0, 1), (1.4, 2), (1.8, 3), (2.0, 4), (5.0, 4), (9.0, 5)):
        view.update(at(status, elapsed_s, round))
    assert [line.split(",")[0] for line in printed(console)] == ["2 of 50 rounds", "5 of 50 rounds", "6 of 50 rounds"]


def test_notes_and_paths_are_printed_as_they_are(console: Console) -> None:
    text = "node 3 [died] in /a/very/long/path" + "/x" * 60
    open_view(console).note(text)
    assert printed(console) == [text]


def test_on_a_terminal_lines_are_folded_between_words() -> None:
    text = (
        "of 3 entries of events nothing came, as the nodes ended at 12.5 s: first events[0], crash in /a/long/path"
        + "/x" * 50
    )
    for width in (20, 40, 79, 80, 200):
        console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
        say(console, f"  {text}", hang=2)
        assert " ".join(line.strip() for line in printed(console)) == text
        assert all(len(line) <= width or " " not in line.strip() for line in printed(console))
        assert all(line.startswith("  ") for line in printed(console))


def test_what_is_not_known_yet_is_left_out() -> None:
    assert describe(FleetStatus("q", "processes", "sgp", rounds=5)) == {"sent": "0 B", "messages": "0 sent"}


def test_when_all_nodes_ended_nobody_is_slowest(status: FleetStatus) -> None:
    for node in status.nodes.values():
        node.phase = Phase.FINISHED
    assert "slowest" not in describe(status)
    assert describe(status)["left"] == "0 s"


def test_a_terminal_gets_a_panel(status: FleetStatus) -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    with open_view(console) as view:
        assert isinstance(view, LiveView)
        view.update(status)
        view.note("node 5 died")
    text = "\n".join(printed(console))
    for part in (
        "ring-under-loss",
        "20 of 50 rounds",
        "71.2%",
        "3,456 sent, 12 lost",
        "node 0 (round 20)",
        "node 5 died",
    ):
        assert part in text


def test_accuracy_and_loss_are_curves(status: FleetStatus) -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    with LiveView(console) as view:
        for round in range(40):
            evaluation = EvaluationStatus(round, test_accuracy=round / 50, test_loss=2 - round / 50)
            view.update(replace(status, evaluation=evaluation))
    text = "\n".join(printed(console))
    assert "78.0%   ▁▁" in text
    assert "██ from 0.0%" in text
    assert "▁ from 2" in text


def test_a_curve_has_blanks_where_nothing_is_known() -> None:
    assert sparkline([0.0, float("nan"), 7.0]) == "▁ █"
    assert sparkline([1.0, 1.0]) == "▁▁"
    assert sparkline([float("inf")]) == " "
    assert len(sparkline(range(1000), 32)) == 32


def test_who_waits_is_named_with_whom_it_waits_for(status: FleetStatus) -> None:
    waiting = [
        WaitingStatus(3, 20, (2, 5), 7.0),
        WaitingStatus(4, 19, tuple(range(12)), 6.5),
        WaitingStatus(5, 1, (), 0),
    ]
    status = replace(status, elapsed_s=8.2, waiting=waiting)
    console = Console(file=io.StringIO(), width=80)
    console.print(panel(status, describe(status)))
    lines = printed(console)
    assert any("node 3" in line and "waits in round 20 for 2, 5, since 7.0 s (1.2 s)" in line for line in lines)
    assert any("for 0, 1, 2, 3, 4, 5 and 6 more" in line for line in lines)
    assert any("for whoever sends" in line for line in lines)
    assert KEYS in lines[-1]


@pytest.mark.parametrize("width", [80, 60, 50])
def test_no_line_is_wider_than_the_terminal(status: FleetStatus, width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    status = replace(status, scenario="x" * 70, waiting=[WaitingStatus(3, 20, tuple(range(12)), 7.0)])
    console.print(panel(status, describe(status)))
    assert len(printed(console)) == 2 + len(describe(status)) + 2
    assert max(map(len, printed(console))) <= width


def test_a_terminal_that_became_narrower_is_erased_as_it_is_now(status: FleetStatus) -> None:
    """A line of 60 cells takes two rows of 40: as many are erased, so that no second title stays."""
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    with LiveView(console) as view:
        view.update(status)
        lengths = [line.__len__() for line in Text.from_ansi(_last_frame(console)).plain.splitlines()]
        console.width = 40
        console.file = io.StringIO()
        view.update(status)
    erased = console.file.getvalue().count("\x1b[2K")
    assert sum(length > 40 for length in lengths) > 2
    assert erased >= sum(max(1, -(-length // 40)) for length in lengths)


def _last_frame(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().rpartition("\x1b[2K")[2]


def test_the_summary_names_verdict_figures_and_places(run: Run, console: Console) -> None:
    (run.path / "report.html").touch()
    open_view(console).summary(run.result, run.path)
    lines = printed(console)
    assert lines[0] == "fail  ring-under-loss: 16 nodes, 50 rounds of sgp, 21 s"
    assert lines[1] == "  node 5 died in round 25: killed by SIGKILL"
    assert lines[-2:] == [f"  run        {run.path}", f"  report     {run.path / 'report.html'}"]
    assert any(line.startswith("  accuracy   90.3% average model") for line in lines)


def test_a_simulated_run_says_both_durations(run: Run, console: Console) -> None:
    open_view(console).summary({**run.result, "duration_s": 12.3, "virtual_duration_s": 184.0}, run.path)
    assert printed(console)[0].endswith("50 rounds of sgp, 12 s; 3 min 4 s in virtual time")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0004, "0.4 ms"),
        (0.04, "40 ms"),
        (9.94, "9.9 s"),
        (59.6, "1 min 0 s"),
        (125, "2 min 5 s"),
        (7260, "2 h 1 min"),
    ],
)
def test_durations_are_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_neither_package_loads_what_only_the_page_needs() -> None:
    heavy = {"torch", "duckdb", "matplotlib", "jinja2", "networkx", "pandas"}
    code = f"import sys, netdfl.record, netdfl.record.result, netdfl.report; print({heavy!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert done.stdout.strip() == "set()"
