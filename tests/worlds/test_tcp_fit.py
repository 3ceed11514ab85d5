"""The fit of the tcp model: it keeps means and shares, and says honestly how far a repeat is off."""

from __future__ import annotations

import json
import math
import random
from functools import cache
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdfl.links.rules.tcp import TcpTable, on_the_line_ns
from netdfl.packets.calibration.fit import ComparedShare, FitRow, compare, fit, markdown, predict, put, write
from netdfl.packets.calibration.measure import GRID, SIZES, CalibrationCell

COUNT, CONNECTIONS = 100, 4


def least_s(cell: CalibrationCell) -> float:
    return (cell.rtt_ns / 2 + on_the_line_ns(cell.nbytes, cell.rate_bps)) / 1e9


@cache
def made_up(seed: int, slower: float = 1.0) -> dict[CalibrationCell, list[list[float]]]:
    """Times with back-off: a message's packets are lost so many times in a row, some messages for good."""
    dice = random.Random(seed)

    def one(cell: CalibrationCell) -> float:
        if cell.nbytes == SIZES[-1] and cell.loss == 0.2:
            return math.inf
        rto, late = 0.2 + cell.rtt_ns / 1e9, 0.0
        while dice.random() < cell.loss:
            late = 2 * late + rto
        return least_s(cell) + slower * (late + cell.loss * cell.nbytes / 1e6 * (1 + dice.random()))

    return {cell: [[one(cell) for _ in range(COUNT)] for _ in range(CONNECTIONS)] for cell in GRID}


@cache
def fitted() -> TcpTable:
    return fit(made_up(1))


@pytest.fixture
def table() -> TcpTable:
    return fitted()


def test_the_fit_finds_the_timeout(table: TcpTable) -> None:
    assert table.timeout_ns + table.timeout_rtts * 40e6 == pytest.approx(240e6, rel=0.02)
    assert table.timeout_ns + table.timeout_rtts * 100e6 == pytest.approx(300e6, rel=0.02)


@given(st.sampled_from([cell for cell in GRID if cell.nbytes > SIZES[0] and cell.loss < 0.2]))
def test_the_slices_keep_the_mean(cell: CalibrationCell) -> None:
    times, made = made_up(1), fitted()
    curve, coming = made.curve(*cell)
    assert coming == 1
    weights = [more - less for less, more in zip(made.levels, (*made.levels[1:], 1.0), strict=True)]
    mean_s = least_s(cell) + sum(weight * each for weight, each in zip(weights, curve, strict=True)) / 1e9
    assert mean_s == pytest.approx(fmean(map(fmean, times[cell])), rel=1e-3)


def test_what_the_model_predicts_is_what_was_fitted(table: TcpTable) -> None:
    cell = CalibrationCell(SIZES[0], 0.1, GRID[0].rtt_ns, GRID[0].rate_bps)
    late = [each > least_s(cell) + 0.2 for each in predict(table, cell, 20_000)]
    assert fmean(late) == pytest.approx(0.1, abs=0.03)


def test_a_repeat_is_within_the_bounds_and_a_slower_network_is_not(table: TcpTable) -> None:
    cells = [CalibrationCell(SIZES[2], loss, GRID[0].rtt_ns, GRID[0].rate_bps) for loss in (0.0, 0.05, 0.1)]
    again, slower = made_up(2), made_up(2, slower=2.0)
    assert all(row.kept for row in compare(table, {cell: again[cell] for cell in cells}))
    assert not all(row.kept for row in compare(table, {cell: slower[cell] for cell in cells}))


def test_the_dead_are_compared_as_the_dead(table: TcpTable) -> None:
    cell = CalibrationCell(SIZES[3], 0.2, GRID[0].rtt_ns, GRID[0].rate_bps)
    (row,) = compare(table, {cell: [[math.inf] * 25] * 2})
    assert (row.kept, row.few, row.dead[:2]) == (True, True, (1.0, 1.0))
    (row,) = compare(table, {cell: [[1.0, math.inf] * 25] * 2})
    assert not row.kept


def row(median_s: float = 1.0, mean_s: float = 1.0, late: float = 0.2, came: int = 100) -> FitRow:
    shares = (ComparedShare(0.2, late, 0.03, 0.02), ComparedShare(0.0, 0.0, 0.03, 0.02))
    return FitRow(GRID[0], 100, came, (1.0, median_s), (1.0, mean_s), *shares)


def test_a_cell_is_off_by_any_of_its_figures() -> None:
    assert row(1.14, 1.19, 0.28).kept
    assert not row(1.14, 1.19, 0.28).alone.kept
    assert not row(median_s=1.16).kept
    assert not row(mean_s=1.21).kept
    assert not row(late=0.3).kept
    assert row(mean_s=1.21, came=29).kept
    assert "| off |" in markdown([row(mean_s=0.7)])
    assert "1 of 2 cells within the bounds (0 if " in markdown([row(late=0.28), row(mean_s=0.7)])


def test_a_median_on_the_jump_is_not_compared() -> None:
    on_it = row(median_s=1.5)._replace(late=ComparedShare(0.45, 0.5, 0.06, 0.02))
    assert on_it.jump
    assert on_it.kept
    assert not on_it._replace(late=ComparedShare(0.43, 0.5, 0.06, 0.02)).jump


def test_the_standard_error_is_between_connections_and_at_least_that_of_independent_messages() -> None:
    apart = ComparedShare.of([[True] * 50, [False] * 50, [True] * 50, [False] * 50], 0.5)
    assert apart.error == pytest.approx((2 / 3 / 4) ** 0.5)
    alike = ComparedShare.of([[True, False] * 25] * 4, 0.5)
    assert alike.error == alike.least == apart.least == pytest.approx((2 * 0.25 / 200) ** 0.5)


def test_what_is_written_is_what_was_fitted(table: TcpTable, tmp_path: Path) -> None:
    write(table, tmp_path / "table.json")
    assert TcpTable.of(json.loads((tmp_path / "table.json").read_text())) == table


def test_the_comparison_goes_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- calibration: begin -->old<!-- calibration: end -->\nafter\n")
    put("new", page)
    put("newer", page)
    assert page.read_text() == ("before\n<!-- calibration: begin -->\n\nnewer\n\n<!-- calibration: end -->\nafter\n")
    page.write_text("nothing")
    with pytest.raises(ValueError, match="between which"):
        put("new", page)
