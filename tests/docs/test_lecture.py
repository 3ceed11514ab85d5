"""The lecture: every command prints what the page shows, and all of its scenarios are shown."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from contextlib import chdir
from itertools import pairwise
from pathlib import Path

import pytest
from test_tutorial import ROOT, blocks, matches, shown
from typer.testing import CliRunner

import netdfl
from netdfl.cli.commands import make_app
from netdfl.record.run import Run

PAGE = ROOT / "docs" / "lecture.md"
COMMANDS = [each for block in blocks(PAGE) for each in shown(block.text)]
ALIKE = (
    "netdfl run lecture/4_loss --set algorithm=dpsgd --set topology=random_sym",
    "netdfl run lecture/5_standstill --set wait.for=any",
    "netdfl run lecture/6_crash --set 'events=[{at_round: 3, crash: 5, restart_after: 100ms}]'",
    "netdfl run lecture/6_crash --set algorithm=dpsgd --set topology=random_sym",
    "netdfl run lecture/6_crash --set 'events=[{at_round: 15, crash: 5}]'",
)
"""Commands like another one of the same section."""
FIRST = ["netdfl run lecture/4_loss --out loss/plain", "netdfl run lecture/4_loss --set delivery=auto --out loss/auto"]
"""The runs that the page's query is about."""


class Desk:
    """A folder in which a command is typed once, whichever tests look at it; no run has a page.

    A run that was made is copied to where another command has it, and not made again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._printed = folder, dict[str, str]()

    def typed(self, command: str) -> str:
        """What it prints."""
        run, _, out = command.partition(" --out ")
        if run in self._printed and out and command not in self._printed:
            shutil.copytree(self._folder / self._place(run), self._folder / out)
            self._printed[command] = self._printed[run]
        if command not in self._printed:
            words = shlex.split(command)[1:]
            if words[0] == "run":
                words += ["--no-page", *(() if "--out" in words else ("--out", self._place(command)))]
            with chdir(self._folder):
                self._printed[command] = CliRunner().invoke(make_app(), words, env={"COLUMNS": "200"}).output
        return self._printed[command]

    def run(self, command: str) -> Run:
        """The run that it makes."""
        self.typed(command)
        return netdfl.open_run(self._folder / self._place(command))

    def _place(self, command: str) -> str:
        words = shlex.split(command)
        return words[words.index("--out") + 1] if "--out" in words else re.sub(r"\W+", "_", command)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(tmp_path_factory.mktemp("desk"))


def marks(command: str) -> list[pytest.MarkDecorator]:
    """The soak's for what makes many runs, or one like another."""
    return [pytest.mark.soak] if "--seeds" in command or command in ALIKE else []


@pytest.mark.parametrize(
    ("command", "lines"), [pytest.param(*each, marks=marks(each[0]), id=each[0][:70]) for each in COMMANDS]
)
def test_the_command_prints_what_the_page_shows(command: str, lines: list[str], desk: Desk) -> None:
    for first in FIRST if command.startswith("netdfl query") else ():
        assert (first, []) in COMMANDS
        desk.typed(first)
    printed = desk.typed(command)
    for line in lines:
        assert matches(line, printed), f"`{command}` was to print\n{line}\nand printed\n{printed}"


def test_what_is_alike_is_on_the_page() -> None:
    assert set(ALIKE) <= {command for command, _ in COMMANDS}


def test_every_scenario_of_the_lecture_is_in_it() -> None:
    shipped = {f"lecture/{file.stem}" for file in (ROOT / "scenarios" / "lecture").glob("*.yaml")}
    assert shipped == set(re.findall(r"lecture/\w+", "\n".join(command for command, _ in COMMANDS)))


@pytest.fixture(scope="module")
def alone(desk: Desk) -> Run:
    return desk.run("netdfl run lecture/2_alone_and_together")


def by_round(run: Run, name: str) -> list[float]:
    rows = run.rows("SELECT value FROM metrics WHERE node IS NULL AND name = ? ORDER BY round", (name,))
    return [value for (value,) in rows]


def test_the_distance_halves_in_as_many_rounds_as_the_gap_foresees(desk: Desk) -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    ring = desk.run("netdfl run lecture/1_agreement --out runs/ring")
    larger = desk.run("netdfl run lecture/1_agreement --set nodes=32 --set rounds=200")
    apart = by_round(ring, "consensus_distance")
    assert f"After the first round they differed by {apart[0]:.0f} (" in text
    assert f"after 60 rounds still by {apart[59]:.1f}".replace("0.", ".") in text
    apart = by_round(larger, "consensus_distance")
    assert f"After 60 rounds it is {apart[59]:.2f}, after 114 it is {apart[113]:.2f}".replace("is 0.", "is .") in text
    assert apart[113] / apart[59] == pytest.approx(0.5, abs=0.01)


def test_the_curve_of_own_labels_falls_with_the_first_mixing_and_for_the_reason_that_is_given(
    alone: Run, desk: Desk
) -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    own = by_round(alone, "mean_personal_accuracy")
    assert f"It falls from {own[9]:.0%} to {own[10]:.0%} in the".replace("%", " %") in text
    assert f"ends at {own[-1]:.0%}".replace("%", " %") in text
    even = desk.run("netdfl run lecture/2_alone_and_together --set task.dataset.partition.alpha=10")
    alike = by_round(even, "mean_personal_accuracy")
    assert alike[10] > alike[9], "neighbors that saw the same classes take nothing"


def test_the_handle_shows_the_catching_up(alone: Run) -> None:
    sql = "SELECT max(at_s) FROM metrics WHERE name = 'round_s' AND node >= 0 GROUP BY round ORDER BY round"
    ends = [0.0, *(at_s for (at_s,) in alone.rows(sql))]
    assert [round(after - before, 2) for before, after in pairwise(ends)] == [1.1] * 10 + [0.1] * 10


def test_who_stands_still_first_and_who_last(desk: Desk) -> None:
    kept = json.loads((desk.run("netdfl run lecture/5_standstill").path / "stalls/000.json").read_text())
    since = {each["node"]: each["wait"]["since_ns"] // 10**6 for each in kept["nodes"]}
    assert since == {3: 85, 2: 100, 4: 100, 1: 115, 5: 115, 0: 130, 6: 130, 7: 145}


def test_the_diagnosis_waits_for_some_copies_and_not_for_all(desk: Desk) -> None:
    once, again = (desk.run(f"netdfl run lecture/5_standstill{more}") for more in ("", " --set delivery=acknowledged"))
    lost = again.rows("SELECT count(*) FROM messages WHERE kind = 'data' AND fate = 'dropped:loss'")
    assert [each.result["stalls"][0]["found_s"] for each in (once, again)] == [0.15, 2.0]
    assert lost == [(7,)]


def test_models_of_one_way_links_agree_though_weights_do_not(desk: Desk) -> None:
    command = ["replay", str(desk.run("netdfl run lecture/3_one_way").path), "--until", "end"]
    printed = CliRunner().invoke(make_app(), command, input="nodes\n", env={"COLUMNS": "200"}).output
    lines = printed.splitlines()
    (head,) = [number for number, line in enumerate(lines) if line.split()[-3:] == ["weight", "norm", "distance"]]
    weights, norms, _ = zip(*(line.split()[-3:] for line in lines[head + 1 : head + 17]), strict=True)
    (norm,) = set(norms)
    low, high = (f"{weight:.2f}".removeprefix("0") for weight in (min(map(float, weights)), max(map(float, weights))))
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"the norm {norm}, with weights from {low} to {high}" in text
