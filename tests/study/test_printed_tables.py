"""A sweep's table on a page of LaTeX: what fits there, how numbers look, and what it is called."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from netdfl.study.latex_text import PAGE, width_of
from netdfl.study.number_text import decimals_of, number, probability
from netdfl.study.summary import GridPoint
from netdfl.study.sweep import sweep
from netdfl.study.tables import SweepTable
from tests.in_process import InProcess
from tests.study.few_runs import FEW

LOGS = frozenset({"error"})


def table(rows: Mapping[str, Mapping[str, Sequence[float]]], logs: frozenset[str] = LOGS) -> SweepTable:
    """A table with these figures of each case, by seed."""
    points = [
        GridPoint(
            case,
            (),
            0,
            {name: tuple(found) for name, found in figures.items()},
            {seed: {name: found[seed] for name, found in figures.items()} for seed in range(2)},
        )
        for case, figures in rows.items()
    ]
    return SweepTable(points, list(next(iter(rows.values()))), logs)


def caption_of(text: str) -> str:
    (caption,) = re.findall(r"\\caption\{(.*)\}\n", text)
    return str(caption)


def heading_of(text: str) -> str:
    return next(line for line in text.splitlines() if " & " in line)


def test_what_looks_alike_in_all_rows_is_in_the_caption_and_no_column() -> None:
    found = table(
        {
            "a": {"test_loss": (0.5, 0.6), "bytes_sent": (11_600_000.0, 11_602_750.0), "rounds": (20.0, 20.0)},
            "b": {"test_loss": (0.7, 0.8), "bytes_sent": (11_601_000.0, 11_599_000.0), "rounds": (20.0, 20.0)},
        }
    )
    text = found.latex("digits")
    assert heading_of(text).strip() == r"case & test loss \\"
    assert "The same in all rows: bytes sent: 11.6 MB; rounds: 20." in caption_of(text)
    assert "| a | 2 |" in found.markdown()
    assert "11.6 MB ±" not in found.markdown(), "an interval from 11.6 to 11.6 MB says nothing"
    assert "| 11.6 MB | 20 |" in found.markdown()


def test_a_table_in_which_all_is_equal_keeps_its_columns() -> None:
    text = table({case: {"bytes_sent": (3e6, 3e6)} for case in "ab"}).latex("digits")
    assert "bytes sent" in heading_of(text)
    assert "same in all rows" not in text


def test_numbers_of_a_column_have_the_same_number_of_decimals() -> None:
    found = table({"a": {"test_loss": (8.17 - 1.98, 8.17 + 1.98)}, "b": {"test_loss": (5.79 - 0.6406, 5.79 + 0.6406)}})
    assert "| a | 2 | 8.17 ± 2.80 (" in found.markdown()
    assert "| b | 2 | 5.79 ± 0.91 (" in found.markdown()
    of_logs = table({"a": {"error": (0.68, 0.68)}, "b": {"error": (0.932, 0.932)}}).markdown()
    assert "**0.680** |" in of_logs
    assert "| 0.932 |" in of_logs


def test_a_ratio_that_is_the_same_for_every_seed_holds_and_signs_are_said_to_decide_the_rest() -> None:
    """Five seeds whose errors differ by one factor, up to rounding, could never hold by their signs."""
    starts = [0.3, 0.5, 0.21, 0.77, 0.4]
    errors = {"slow": starts, "fast": [0.5549 * x * (1 + 1e-15 * n) for n, x in enumerate(starts)]}
    points = [
        GridPoint(
            case,
            (),
            0,
            {"error": tuple(found), "test_accuracy": tuple(found)},
            {seed: {"error": x, "test_accuracy": round(starts[seed], 2) + (case == "fast") / 8} for seed, x in each},
        )
        for case, found in errors.items()
        for each in [list(enumerate(found))]
    ]
    text = SweepTable(points, ["error", "test_accuracy"], LOGS).markdown()
    assert "fast against slow: 0.5549 times as much in every run\n" in text
    assert "p 0.062 by the signs alone: does not hold\n" in text


@pytest.mark.parametrize(
    ("name", "means", "decimals"),
    [
        ("rounds", [20.0, 20.0], 0),
        ("rounds", [19.6, 20.0], 1),
        ("test_loss", [0.5, 0.25], 2),
        ("error", [1e-9, 0.3], None),
        ("error", [2e-16, 3e-16], None),
        ("test_loss", [123456.0, 2e5], None),
        ("stalled", [0.2, 0.4], None),
        ("test_accuracy", [0.2, 0.4], None),
        ("test_loss", [0.0, 0.0], None),
        ("test_loss", [-0.123, 0.5], 3),
    ],
)
def test_only_numbers_of_one_size_share_their_decimals(name: str, means: list[float], decimals: int | None) -> None:
    assert decimals_of(name, means) == decimals


def test_numbers_alone_have_three_digits() -> None:
    assert [number("test_loss", 8.1749), number("test_loss", 2.8, 2), number("bytes_sent", 1.26e6)] == [
        "8.17",
        "2.80",
        "1.26 MB",
    ]


@pytest.mark.parametrize(
    ("p", "text"), [(0.0498, "0.0498"), (0.05, "0.05"), (0.0502, "0.05"), (0.04999, "0.04999"), (0.0042, "0.0042")]
)
def test_a_p_value_is_on_its_side_of_the_level(p: float, text: str) -> None:
    assert probability(p) == text


def test_a_wide_table_has_headings_of_several_lines_and_narrow_gaps() -> None:
    figures = ["test_loss", "consensus_distance", "virtual_duration_s", "rounds_per_s", "error"]
    rows = {
        case: {name: (place + 0.1 * n, place + 0.2 * n) for n, name in enumerate(figures, 1)}
        for place, case in enumerate(("one", "another"), 1)
    }
    text = table(rows).latex("digits")
    assert r"\shortstack[r]{consensus\\distance}" in heading_of(text)
    assert r"\shortstack[r]{error\\(distance to\\the known\\answer)}" in heading_of(text)
    assert "\\setlength{\\tabcolsep}{4pt}" in text
    narrow = table({case: {"test_loss": found["test_loss"]} for case, found in rows.items()}).latex("digits")
    assert "shortstack" not in narrow
    assert "tabcolsep" not in narrow


def test_a_width_is_of_the_widest_cell_of_each_column_and_the_gaps() -> None:
    assert width_of(["a", "b"], [["x" * 10, "1.0 (0.9 to 1.1)"]]) == pytest.approx(50 + 11 * 4.3 + 24)
    assert width_of(["x" * 80], []) > PAGE


def test_noise_against_noise_is_neither_tested_nor_best() -> None:
    """Errors of rounding differ from seed to seed, and a test of their logarithms may hold."""
    both = table({"a": {"error": (4.2e-16, 4.3e-16)}, "b": {"error": (2.2e-16, 2.3e-16)}})
    (found,) = both.found("error")
    assert (found.tested, found.holds) == (False, False)
    assert "- error (distance to the known answer), b and a: rounding noise in both, not tested\n" in both.markdown()
    assert both.best("error") == set()
    assert "**" not in both.markdown()
    real = table({"a": {"error": (4.2e-16, 4.3e-16)}, "b": {"error": (0.1, 0.1001)}})
    assert [each.holds for each in real.found("error")] == [True]


@pytest.mark.usefixtures("undrawn")
def test_a_title_stands_in_captions_and_headings_and_the_label_has_the_name(tmp_path: Path) -> None:
    file, said = tmp_path / "mine.yaml", io.StringIO()
    file.write_text(
        FEW.replace("  few:\n", "  few_runs:\n    title: 'Few runs, 50 % & more'\n")
        + "      topology: ring\n    cases: {one: {}, two: {topology.kind: full}}\n    seeds: 1\n"
    )
    assert sweep(file, out=tmp_path / "out", console=Console(file=said, width=200), make_runner=InProcess) == 0
    text = (tmp_path / "out/few_runs/table.tex").read_text()
    assert caption_of(text).startswith(r"Few runs, 50 \% \& more. ")
    assert "\\label{tab:few-runs}" in text
    assert (tmp_path / "out/few_runs/table.md").read_text().startswith("# Few runs, 50 % & more\n\n")
    assert "Few runs, 50 % & more: consensus distance" in said.getvalue()
