"""Means and intervals, the grid, and what is read of a cell."""

from __future__ import annotations

import csv
import errno
from pathlib import Path
from statistics import stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdfl.core.errors import InputError, RunError
from netdfl.study.plan import GridPlan, cells_of, each_value, parse_vary, split_values
from netdfl.study.summary import GridPoint, estimate, estimate_log, estimate_share, estimates, write_points


def test_the_interval_is_students() -> None:
    """Four numbers with deviation 2: 3.182 * 2 / 2 to either side."""
    found = estimate([10 - 3**0.5, 10 - 3**0.5, 10 + 3**0.5, 10 + 3**0.5])
    assert found.mean == pytest.approx(10)
    assert (found.low, found.high) == pytest.approx((10 - 3.182, 10 + 3.182))
    assert estimate([7.0]) == (1, 7.0, 7.0, 7.0)


@pytest.mark.parametrize(("runs", "quantile"), [(31, 2.042), (32, 2.0395), (41, 2.0211), (1001, 1.9623)])
def test_the_interval_of_many_runs_is_students_too(runs: int, quantile: float) -> None:
    numbers = [float(number % 7) for number in range(runs)]
    found = estimate(numbers)
    assert (found.high - found.mean) / (stdev(numbers) / runs**0.5) == pytest.approx(quantile, abs=1e-3)


def test_a_single_run_has_no_interval_in_csv(tmp_path: Path) -> None:
    points = [GridPoint(str(len(of)), (), 0, {"error": of, "stalled": of}) for of in ((0.5,), (0.5, 0.5))]
    write_points(tmp_path / "table.csv", points, frozenset())
    with (tmp_path / "table.csv").open(newline="") as lines:
        ends = {(row["case"], row["figure"]): (row["low"], row["high"]) for row in csv.DictReader(lines)}
    assert ends["1", "error"] == ("", "")
    assert ends["2", "error"] == ("0.5", "0.5")
    assert all(ends["1", "stalled"]), "Wilson's interval of a share is of one run as well"


def test_a_table_that_can_not_be_written_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a table looks as a whole one."""
    points = [GridPoint(str(case), (), 0, {"error": (0.5, 0.7)}) for case in range(3)]
    write_points(table := tmp_path / "table.csv", points, frozenset())
    before, left = table.read_text(), iter([0.1])

    def full(*_: object) -> float:
        for number in left:
            return number
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("netdfl.study.summary.deviation_of", full)
    with pytest.raises(OSError, match="No space left"):
        write_points(table, points, frozenset())
    monkeypatch.undo()
    monkeypatch.setattr("netdfl.study.summary.write_whole", full)
    with pytest.raises(RunError, match=rf"{table} can't be written: No space left on device"):
        write_points(table, points, frozenset())
    assert table.read_text() == before
    assert [each.name for each in tmp_path.iterdir()] == ["table.csv"]


def test_an_interval_of_an_accuracy_ends_at_all_and_at_nothing() -> None:
    point = GridPoint("", (), 0, {"test_accuracy": (0.99, 1.0), "test_mae": (0.1, 0.9)})
    found, own = estimates(point, "test_accuracy"), estimates(point, "test_mae")
    assert found is not None
    assert own is not None
    assert (found.low, found.high) == (pytest.approx(0.9315, abs=1e-4), 1.0)
    assert own.low < 0 < 1 < own.high


@pytest.mark.parametrize("name", ["virtual_duration_s", "round_s_p95", "rounds_per_s", "bytes_sent", "rounds", "error"])
def test_an_interval_of_a_duration_or_a_count_ends_at_nothing(name: str) -> None:
    found = estimates(GridPoint("", (), 0, {name: (1.0, 9.0)}), name)
    assert found is not None
    assert (found.low, found.mean) == (0.0, 5.0)
    assert found.high > 40


def test_a_figure_of_a_task_of_ones_own_may_be_negative() -> None:
    found = estimates(GridPoint("", (), 0, {"test_bias_s": (1.0, 9.0)}), "test_bias_s")
    assert found is not None
    assert found.low < -30


def test_a_share_of_none_or_all_is_not_certain() -> None:
    none, every = estimate_share([0.0] * 5), estimate_share([1.0] * 5)
    assert (none.mean, none.low, every.mean, every.high) == (0, 0, 1, 1)
    assert none.high == pytest.approx(0.4345, abs=1e-3)
    assert every.low == pytest.approx(1 - none.high)


@given(st.lists(st.floats(1e-12, 1e3), min_size=2, max_size=9))
def test_a_geometric_mean_lies_within_its_interval_and_its_numbers(numbers: list[float]) -> None:
    found = estimate_log(numbers)
    assert min(numbers) * (1 - 1e-9) <= found.mean <= max(numbers) * (1 + 1e-9)
    assert found.low <= found.mean * (1 + 1e-12)
    assert found.high >= found.mean * (1 - 1e-12)


def test_commas_inside_brackets_do_not_part() -> None:
    assert split_values("0, {kind: a, b: 1}, [1, 2], 'x,y', 5%") == ["0", "{kind: a, b: 1}", "[1, 2]", "'x,y'", "5%"]


@pytest.mark.parametrize("bad", ["links", "=1,2", "nodes=", "nodes=1,,2"])
def test_what_is_no_variation_is_refused(bad: str) -> None:
    with pytest.raises(InputError, match="expected path=value"):
        parse_vary(bad)


def test_a_grid_is_every_case_at_every_value_with_every_seed() -> None:
    plan = GridPlan(
        "p",
        Path("x"),
        {"a": ["rounds=1"], "b": []},
        {"nodes": each_value("nodes", ["2", "3"]), "lr": {"one": ["lr=1"]}},
        2,
        [],
    )
    cells = list(cells_of(plan, 5))
    assert len(cells) == len({cell.sets for cell in cells}) == 8
    assert cells[0].sets == ("rounds=1", "nodes=2", "lr=1", "seed=5")
    assert cells[-1].words == "b, nodes=3, lr=one, seed=6"
