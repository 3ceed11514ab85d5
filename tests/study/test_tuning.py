"""The search for the smallest deadline or quorum finds what a scan of all values finds, with fewer runs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from netdfl.core.errors import InputError
from netdfl.study.summary import GridPoint, estimate, estimates
from netdfl.study.sweep import sweep
from netdfl.study.tuning.answer import SearchAnswer, tried
from netdfl.study.tuning.boundary import Decision, boundary_of, search
from netdfl.study.tuning.tune import TuneOrder, tune
from netdfl.study.tuning.values import Knob, TuneTarget, deadlines, given_values, read_confidence, read_target
from tests.in_process import InProcess

STRAGGLERS = """
schema: netdfl/1
name: stragglers
nodes: 4
rounds: 4
world: {kind: simulated, compute: {kind: uniform, low: 1ms, high: 40ms}}
task: {kind: consensus, dim: 2}
algorithm: dpsgd
topology: full
"""
FAR = """
schema: netdfl/1
name: far
nodes: 5
rounds: 4
world: processes
task: {kind: consensus, dim: 2}
algorithm: dpsgd
topology: full
links: {default: {latency: {dist: exponential, mean: 20ms}}}
"""
GRIDS: Mapping[str, tuple[Knob, str, Sequence[str], float]] = {
    "stragglers": ("deadline", STRAGGLERS, ["5ms", "20ms", "40ms", "80ms"], 1e-9),
    "far": ("deadline", FAR, ["10ms", "40ms", "80ms"], 1e-3),
    "quorum": ("quorum", FAR, ["1", "2", "3", "4"], 1e-3),
}
STATES: Mapping[str, Decision] = {"m": "misses", "o": "open", "r": "reaches"}


def decided(curve: str) -> Callable[[Sequence[int]], Mapping[int, Decision]]:
    return lambda places: {place: STATES[curve[place]] for place in places}


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(1, 4))
def test_a_search_finds_the_boundaries_of_a_scan(misses: int, opens: int, reaches: int, at_a_time: int) -> None:
    curve = "m" * misses + "o" * opens + "r" * reaches
    if curve:
        looked = search(len(curve), decided(curve), at_a_time)
        assert boundary_of(looked) == boundary_of(decided(curve)(range(len(curve))))


@given(st.text("mor", min_size=1, max_size=20), st.integers(1, 3))
def test_a_search_ends_on_any_curve_and_nothing_misses_above_its_answer(curve: str, at_a_time: int) -> None:
    looked = search(len(curve), decided(curve), at_a_time)
    found = boundary_of(looked)
    if found.reaches is not None:
        assert curve[found.reaches] == "r"
        assert "m" not in "".join(curve[place] for place in looked if place > found.reaches)
    small, large = found.contradiction or (0, 0)
    assert found.contradiction is None or (curve[small], curve[large], small < large) == ("r", "m", True)


def test_a_search_halves_and_does_not_scan() -> None:
    asked: list[Sequence[int]] = []
    curve = "m" * 50 + "r" * 50

    def look(places: Sequence[int]) -> Mapping[int, Decision]:
        asked.append(places)
        return decided(curve)(places)

    assert boundary_of(search(100, look)) == (boundary_of({49: "misses", 50: "reaches"}))
    assert len(asked) <= 8
    assert sum(map(len, asked)) <= 9


def scan(grid: str, scenario: Path, out: Path) -> dict[str, tuple[float, float, float]]:
    """Run every value by a sweep; return mean, low and high of the consensus distance of each."""
    knob, _, values, _ = GRIDS[grid]
    vary = f"wait.deadline={','.join(values)}"
    if knob == "quorum":
        vary = "wait.for=" + ",".join(f"{{quorum: {value}}}" for value in values)
    sweep(
        scenario, [vary], ["world.kind=simulated"], out=out, seeds=3, console=Console(quiet=True), make_runner=InProcess
    )
    (folder,) = (each for each in out.iterdir() if each.is_dir())
    with (folder / "table.csv").open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["figure"] == "consensus_distance"]
    return {
        value: (float(row["mean"]), float(row["low"]), float(row["high"]))
        for value, row in zip(values, rows, strict=True)
    }


@pytest.fixture
def no_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the figure of the target, which one test looks at."""
    monkeypatch.setattr("netdfl.study.tuning.tune.draw_curve", lambda *drawn: None)


RARELY = pytest.mark.soak


@pytest.mark.parametrize(
    "grid", [pytest.param("stragglers", marks=RARELY), "far", pytest.param("quorum", marks=RARELY)]
)
def test_a_tuned_wait_is_what_a_scan_of_its_grid_finds(
    grid: str, tmp_path: Path, draw_nothing: Callable[[], None]
) -> None:
    draw_nothing()
    knob, text, values, most = GRIDS[grid]
    (tmp_path / "s.yaml").write_text(text)
    scanned = scan(grid, tmp_path / "s.yaml", tmp_path / "swept")
    said = io.StringIO()
    out = tmp_path / "tuned"
    out.mkdir()
    (cells,) = (tmp_path / "swept").glob("*/cells")
    (out / "cells").symlink_to(cells)  # the runs are the scan's own: a search makes the same cells
    order = TuneOrder(
        knob=knob, target=TuneTarget("consensus_distance", most), confidence=0.95, values=",".join(values), seeds=3
    )
    before = InProcess.made
    code = tune(tmp_path / "s.yaml", order, out=out, console=Console(file=said, width=200), make_runner=InProcess)
    assert InProcess.made == before
    sure = [value for value in values if scanned[value][2] <= most]
    missed = [value for value in values if scanned[value][1] > most]
    mean = next(value for value in values if scanned[value][0] <= most)
    answer = json.loads((out / "answer.json").read_text())
    assert (code, answer["answer"], answer["above"]) == (0, sure[0], missed[-1])
    assert values.index(missed[-1]) < values.index(mean) <= values.index(sure[0])
    assert f"confidence: {sure[0]}" in said.getvalue()
    for each in answer["values"]:
        assert (each["mean"], each["low"], each["high"]) == pytest.approx(scanned[each["value"]])
    assert (out / "table.csv").exists()
    assert (out / "figures" / "consensus_distance.png").stat().st_size > 0


SMALL = STRAGGLERS.replace("nodes: 4", "nodes: 3").replace("rounds: 4", "rounds: 2")


def order(knob: Knob = "deadline", **more: object) -> TuneOrder:
    asked = {"target": TuneTarget("consensus_distance", 1e-9), "confidence": 0.95, "seeds": 2} | more
    return TuneOrder(knob=knob, **asked)  # type: ignore[arg-type]


def told(file: Path, asked: TuneOrder, out: Path, sets: Sequence[str] = ()) -> tuple[int, str]:
    said = io.StringIO()
    code = tune(file, asked, sets, out=out, console=Console(file=said, width=300), make_runner=InProcess)
    return code, said.getvalue()


@pytest.mark.usefixtures("no_curve")
def test_an_interrupted_search_goes_on_with_what_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draw_nothing: Callable[[], None]
) -> None:
    draw_nothing()
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    asked, out, before = order(values="1ms,90ms"), tmp_path / "out", InProcess.made

    def interrupted(runner: InProcess) -> Iterator[tuple[Path, int | None]]:
        yield next(ended(runner))
        raise KeyboardInterrupt

    with monkeypatch.context() as only_now:
        ended = InProcess.ended
        only_now.setattr(InProcess, "ended", interrupted)
        with pytest.raises(KeyboardInterrupt):
            told(file, asked, out)
    assert InProcess.made == before + 1
    plan = json.loads((out / "study.json").read_text())
    assert (len(plan["cells"]), plan["is_sweep"]) == (4, True)  # netdfl study shows how far it came
    assert "smallest deadline that reaches a consensus distance of at most 1e-09" in told(file, asked, out)[1]
    assert InProcess.made == before + 4
    assert told(file, asked, out)[0] == 0
    assert InProcess.made == before + 4


@pytest.mark.usefixtures("no_curve")
def test_values_come_from_the_rounds_of_auto_and_from_the_graph(
    tmp_path: Path, draw_nothing: Callable[[], None]
) -> None:
    draw_nothing()
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    code, said = told(file, order(target=TuneTarget("consensus_distance", 1e-30)), tmp_path / "out")
    answer = json.loads((tmp_path / "out" / "answer.json").read_text())
    assert code == 1
    assert answer["answer"] is None
    assert f"searched from {answer['grid'][0]} to {answer['grid'][-1]}" in said
    assert f"no deadline up to {answer['grid'][-1]} reaches a consensus distance of at most 1e-30 with 95 %" in said
    assert "no upper end" in said
    code, said = told(file, order("quorum", scan=True), tmp_path / "quorums")
    answer = json.loads((tmp_path / "quorums" / "answer.json").read_text())
    assert (code, answer["grid"], [each["value"] for each in answer["values"]]) == (0, ["1", "2"], ["1", "2"])


def test_deadlines_go_from_a_tenth_of_a_round_to_twice_the_longest() -> None:
    assert deadlines([0.1, 0.2], [0.3]) == [
        "10ms", "15ms", "20ms", "30ms", "50ms", "70ms", "100ms", "150ms", "200ms", "300ms", "500ms", "700ms",
    ]  # fmt: skip
    with pytest.raises(InputError, match=r"rounds take no time here.* world\.compute; or say --values"):
        deadlines([0.0], [0.0])


def point(*accuracies: float | None, failed: int = 0, **more: float) -> GridPoint:
    by_seed = {seed: ({} if x is None else {"test_accuracy": x}) | more for seed, x in enumerate(accuracies)}
    names = {name for figures in by_seed.values() for name in figures}
    columns = {name: tuple(figures[name] for figures in by_seed.values() if name in figures) for name in names}
    return GridPoint("", (("wait.deadline", "1s"),), failed, columns, by_seed)


@pytest.mark.parametrize(
    ("at", "decision", "note"),
    [
        (point(0.92, 0.93, 0.91), "open", ""),  # 0.895 to 0.945
        (point(0.93, 0.93, 0.92), "reaches", ""),
        (point(0.9, 0.9), "reaches", ""),
        (point(0.89, 0.91), "open", ""),
        (point(0.86, 0.87, 0.86), "misses", ""),
        (point(0.95, None), "misses", "a run has no test accuracy"),
        (point(0.95, 0.95, stalled=1.0), "misses", "a run ended so: stalled"),
        (point(0.95, 0.95, died=1.0), "misses", "a run ended so: died"),
        (point(0.95, 0.95, deadlock=0.0), "reaches", ""),
        (point(0.95, 0.95, failed=1), "open", "runs failed"),
        (point(failed=2), "open", "runs failed"),
    ],
)
def test_a_value_reaches_where_its_interval_does_and_every_run_came_to_its_end(
    at: GridPoint, decision: Decision, note: str
) -> None:
    found = tried("1s", at, TuneTarget("test_accuracy", 0.9), 0.95)
    assert found.decision == decision
    assert found.note.startswith(note)
    assert bool(found.note) == bool(note)


def test_a_smaller_confidence_decides_what_a_larger_leaves_open() -> None:
    at, target = point(0.92, 0.93, 0.91), TuneTarget("test_accuracy", 0.9)
    assert [tried("1s", at, target, level).decision for level in (0.8, 0.95, 0.99)] == ["reaches", "open", "open"]
    assert estimate([1.0, 2.0, 4.0], 0.95) == pytest.approx(estimate([1.0, 2.0, 4.0], 0.95 + 1e-12), rel=1e-3)
    wide, narrow = (estimates(at, "test_accuracy", confidence=level) for level in (0.99, 0.5))
    assert wide is not None
    assert narrow is not None
    assert wide.low < narrow.low < narrow.mean < narrow.high < wide.high


def test_a_curve_that_goes_down_again_is_told_and_its_answer_lies_above_what_misses() -> None:
    target = TuneTarget("test_accuracy", 0.9)
    curve = [point(0.5, 0.5), point(0.95, 0.95), point(0.5, 0.5), point(0.91, 0.91)]
    values = ["10ms", "20ms", "30ms", "40ms"]
    tuning = SearchAnswer(
        "s", "deadline", target, 0.95, values,
        {place: tried(value, at, target, 0.95) for place, (value, at) in enumerate(zip(values, curve, strict=True))},
    )  # fmt: skip
    assert (tuning.answer, tuning.above, tuning.by_mean) == ("40ms", "30ms", "40ms")
    assert "20ms reaches the target and 30ms misses it: look at every value with --scan" in tuning.lines()


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (lambda: read_target(None, None), r"needs one target: give either --accuracy 90% or --consensus 1e-3"),
        (lambda: read_target("90%", 1e-3), r"needs one target"),
        (lambda: read_target("900%", None), r"--accuracy 900%: .*not a probability; write 0 to 1"),
        (lambda: read_target(None, 0.0), r"--consensus 0: a distance to stay below is above 0"),
        (lambda: read_confidence("100%"), r"--confidence 100%: .*write 50% to 99\.9%"),
        (lambda: read_confidence("40%"), r"--confidence 40%"),
        (lambda: read_confidence("much"), r"--confidence much: .*not a probability"),
        (lambda: given_values("deadline", "10ms"), r"--values 10ms: a search needs two different values"),
        (lambda: given_values("deadline", "0s,1s"), r"--values 0s,1s: .*each above 0"),
        (lambda: given_values("deadline", "10ms,soon"), r"--values 10ms,soon: 'soon' is not a time"),
        (lambda: given_values("quorum", "1,2.5"), r"--values 1,2\.5: '2\.5' is no quorum; write whole numbers"),
    ],
)
def test_what_can_t_be_searched_is_refused_with_its_remedy(read: Callable[[], object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read()


@pytest.mark.parametrize(
    ("change", "asked", "said"),
    [
        ("", order("quorum", values="2,3"), r"quorum=3 can't be run: .*nobody on full ever hears from 3"),
        ("topology: full", order("quorum"), r"a node hears from 1 others in a round, so no quorum can be chosen"),
        ("key", order(values="1s,2s"), r"waits"),
        (
            "",
            order(target=TuneTarget("test_accuracy", 0.9)),
            r"test_accuracy is never measured by the task cons",
        ),
    ],
)
def test_what_a_scenario_refuses_is_told_before_anything_is_run(
    change: str, asked: TuneOrder, said: str, tmp_path: Path
) -> None:
    file, before = tmp_path / "small.yaml", InProcess.made
    text = {"": SMALL, "topology: full": SMALL.replace("nodes: 3", "nodes: 2"), "key": SMALL + "waits: 1\n"}
    file.write_text(text[change])
    with pytest.raises(InputError, match=said):
        told(file, asked, tmp_path / "out")
    assert InProcess.made == before


def test_a_figure_that_no_run_has_ends_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    monkeypatch.setattr("netdfl.study.summary.figures_of", lambda ran: {"stalled": 0.0})
    said = r"no run of 1ms, 2ms has a consensus distance at its end: .*diverge.*look at .*cells"
    with pytest.raises(InputError, match=said):
        told(file, order(values="1ms,2ms"), tmp_path / "out")


def test_values_are_given_in_any_order_and_once() -> None:
    assert given_values("deadline", "1s,20ms, 1000ms,5ms") == ["5ms", "20ms", "1000ms"]
    assert given_values("quorum", "4,2") == ["2", "4"]


def test_a_study_is_no_scenario(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"loss\.yaml: is a study, and a search takes one scenario"):
        told(Path("studies/loss"), order(), tmp_path)
