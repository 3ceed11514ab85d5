"""What a sweep says of its points: tables, differences that hold, learning curves, names of runs."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.console import Console
from scipy.stats import ttest_rel

from netdfl.scenario.model.study import FigureSpec
from netdfl.study.learning import band
from netdfl.study.plan import Cell
from netdfl.study.plots import draw, figure_of, name_of
from netdfl.study.run_links import name_run
from netdfl.study.summary import GridPoint, differences, paired_t
from netdfl.study.sweep import sweep
from netdfl.study.tables import SweepTable
from tests.study.few_runs import IN_TIME

SCENARIO = f"schema: netdfl/1\nname: swept_50%_&_more\n{IN_TIME}"


def point(name: str, accuracies: list[float]) -> GridPoint:
    by_seed = {seed: {"test_accuracy": value} for seed, value in enumerate(accuracies)}
    return GridPoint("", (("algorithm.name", name),), 0, {"test_accuracy": tuple(accuracies)}, by_seed)


WORSE, BETTER, SAME = ([0.80, 0.82, 0.81, 0.79], [0.90, 0.93, 0.91, 0.90], [0.91, 0.92, 0.90, 0.91])
POINTS = [point("plain", WORSE), point("new_method", BETTER), point("same_method", SAME)]
TABLE = SweepTable(POINTS, ["test_accuracy"], frozenset())


def parse_latex(text: str) -> list[list[str]]:
    """The cells of a table's rows; asserts what LaTeX asks: pairs of braces and environments, rows of equal length."""
    text = re.sub(r"(?<!\\)%.*", "", text)
    text = re.sub(r"\\shortstack\[[lr]\]\{([^{}]*)\}", lambda found: found[1].replace("\\\\", " "), text)
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", text):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    assert depth == 0
    open_ones: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        assert kind == "begin" or open_ones.pop() == name
        open_ones += [name] * (kind == "begin")
    assert not open_ones
    assert not re.search(r"(?<!\\)[_#^]", text)
    (columns,) = re.findall(r"\\begin\{tabular\}\{([lr]+)\}", text)
    rows = [re.split(r"(?<!\\)&", line.removesuffix("\\\\")) for line in text.splitlines() if line.endswith("\\\\")]
    assert {len(row) for row in rows} == {len(columns)}
    return rows


def compile_latex(table: str, folder: Path) -> None:
    """Have LaTeX itself read the table, where it is installed."""
    if shutil.which("pdflatex") is None:
        return
    page = f"\\documentclass{{article}}\n\\usepackage{{booktabs}}\n\\begin{{document}}\n{table}\\end{{document}}\n"
    (folder / "page.tex").write_text(page)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout


def test_the_t_test_is_the_paired_one() -> None:
    apart = list(np.subtract(BETTER, WORSE))
    assert paired_t(apart) == pytest.approx(ttest_rel(BETTER, WORSE).pvalue)
    assert paired_t([0.0, 0.0]) == 1.0


@pytest.mark.parametrize("rounding", [0.0, 1e-14])
def test_equal_differences_between_values_that_vary_are_no_certainty(rounding: float) -> None:
    """Accuracies are multiples of one over the number of examples, so few seeds often differ by the same."""
    assert paired_t([0.5, 0.5 + rounding]) == 0.5
    assert paired_t([0.5, 0.5 + rounding, 0.5]) == 0.25
    assert paired_t([0.5] * 8) < 0.01


def test_differences_are_corrected_for_how_many_there_are() -> None:
    found = {(each.first.values[0][1], each.second.values[0][1]): each for each in differences(POINTS, "test_accuracy")}
    assert {pair: each.holds for pair, each in found.items()} == {
        ("plain", "new_method"): True,
        ("plain", "same_method"): True,
        ("new_method", "same_method"): False,
    }
    raw = sorted(each.p for each in found.values())
    assert sorted(each.p_holm for each in found.values()) == pytest.approx(
        [3 * raw[0], max(3 * raw[0], 2 * raw[1]), raw[2]]
    )


def errors(name: str, numbers: list[float]) -> GridPoint:
    by_seed = {seed: {"error": value} for seed, value in enumerate(numbers)}
    return GridPoint("", (("delivery", name),), 0, {"error": tuple(numbers)}, by_seed)


def test_a_ratio_to_rounding_noise_is_not_told_as_a_size() -> None:
    lossy, exact = errors("plain", [0.03, 0.05, 0.04]), errors("auto", [1e-16, 3e-16, 0.0])
    markdown = SweepTable([lossy, exact], ["error"], frozenset({"error"})).markdown()
    assert "auto against plain: 2.45e-16 (rounding noise) against 0.0391, p " in markdown
    assert "times as much" not in markdown
    near = errors("near", [0.06, 0.1, 0.081])
    markdown = SweepTable([lossy, near], ["error"], frozenset({"error"})).markdown()
    assert re.search(r"near against plain: 2\.\d+ times as much \(", markdown)


def test_only_shared_seeds_are_compared_and_only_what_differs_in_one_respect() -> None:
    alone = point("alone", [0.9])
    assert differences([POINTS[0], alone], "test_accuracy") == []
    two = [POINTS[0]._replace(values=(("a", x), ("b", y))) for x in "12" for y in "12"]
    assert len(differences(two, "test_accuracy")) == 4


def test_the_table_marks_the_best_and_what_does_not_differ_from_it(tmp_path: Path) -> None:
    assert TABLE.best("test_accuracy") == {1, 2}
    markdown = TABLE.markdown()
    assert "| plain | 4 | 80.5% ± 1.3% (78.4% to 82.6%) |" in markdown
    assert "| new_method | 4 | **91.0% ± 1.4% (88.7% to 93.3%)** |" in markdown
    assert "test accuracy, new_method against plain: +10.5 points (+9.6 to +11.4)" in markdown
    assert "paired two-sided t-test" in markdown
    assert "% Pairs that differ in one respect, by a paired two-sided t-test" in TABLE.latex("x")
    rows = parse_latex(TABLE.latex("accuracy_&_more 50%"))
    assert rows[3][0].strip() == r"new\_method"
    assert rows[3][1].strip() == r"\textbf{91.0\% $\pm$ 1.4\%}"
    assert [cell.strip() for cell in rows[4]] == ["", r"{\footnotesize (88.7\% to 93.3\%)}"]
    compile_latex(TABLE.latex("accuracy_&_more 50%"), tmp_path)


def test_a_latex_table_has_a_column_of_runs_only_where_their_numbers_differ() -> None:
    alike, fewer, failed = (
        SweepTable([POINTS[0], other], ["test_accuracy"], frozenset()).latex("a")
        for other in (POINTS[1], point("fewer", BETTER[:3]), POINTS[1]._replace(num_failed=1))
    )
    assert "over 4 seeds" in alike
    assert [cell.strip() for cell in parse_latex(alike)[0]] == ["algorithm", "test accuracy"]
    assert "over 3 to 4 seeds" in fewer
    assert [cell.strip() for cell in parse_latex(fewer)[0]] == ["algorithm", "runs", "test accuracy"]
    assert [row[1].strip() for row in parse_latex(fewer)[1:]] == ["4", "", "3", ""]
    assert parse_latex(failed)[3][1].strip() == "4 (1 failed)"


def test_a_latex_table_can_be_referred_to_and_says_what_its_columns_are() -> None:
    apart = [(0.1, 0.2), (0.1, 0.3), (0.1, 0.4)]
    of_two = [
        each._replace(figures=each.figures | {"consensus_distance": found})
        for each, found in zip(POINTS, apart, strict=True)
    ]
    text = SweepTable(of_two, ["test_accuracy", "consensus_distance"], frozenset({"consensus_distance"})).latex(
        "a_b 5%"
    )
    assert "\\label{tab:a-b-5}" in text
    assert "Test accuracy is that of the average model. Of consensus distance the mean is the geometric one" in text
    assert parse_latex(text)[0][0].strip() == "algorithm"
    assert parse_latex(text)[1][3].strip() == "0.141 (of 2 runs)", (
        "no best one: who trains less keeps its models closer"
    )


def test_a_latex_table_of_constants_has_no_rows_of_intervals_and_names_keys_in_words() -> None:
    values = [(("algorithm.local_epochs", str(n)), ("links.default.loss", "10%")) for n in (1, 2)]
    points = [GridPoint("", each, 0, {"bytes_sent": (3e6, 3e6)}) for each in values]
    text = SweepTable(points, ["bytes_sent"], frozenset()).latex("a")
    heading, *rows = parse_latex(text)
    assert [cell.strip() for cell in heading] == ["local epochs", "message loss", "bytes sent"]
    assert len(rows) == 2
    assert "interval" not in text


def test_what_is_equal_seed_by_seed_is_neither_tested_nor_counted() -> None:
    twins = [POINTS[0], point("twin", WORSE), POINTS[1]]
    table = SweepTable(twins, ["test_accuracy"], frozenset())
    equal, *others = table.found("test_accuracy")
    assert [equal.tested, *(each.tested for each in others)] == [False, True, True]
    assert not equal.holds
    assert {each.comparisons for each in others} == {2}
    assert [each.p_holm for each in others] == pytest.approx([2 * each.p for each in others])
    assert "- test accuracy, twin and plain: the same for every seed, not tested\n" in table.markdown()


@pytest.mark.parametrize("size", [2e-16, 1.2e-7], ids=["float64", "float32"])
@pytest.mark.parametrize("log", [False, True])
def test_what_differs_by_rounding_alone_is_equal(log: bool, size: float) -> None:
    """Sums in another order differ in their last digits, which no test should call a difference."""
    twin = point("twin", [value * (1 + (-1) ** seed * size * (seed + 1)) for seed, value in enumerate(WORSE)])
    assert twin.figures != POINTS[0].figures
    table = SweepTable([POINTS[0], twin, POINTS[1]], ["test_accuracy"], frozenset(["test_accuracy"] * log))
    equal, *others = table.found("test_accuracy")
    assert (equal.tested, equal.holds) == (False, False)
    assert {each.comparisons for each in others} == {2}
    assert [line.partition(" are equal")[0] for line in table.alike()] == ["twin and plain"]


def test_as_many_bytes_more_in_every_run_are_no_matter_of_chance() -> None:
    sizes = [7_900_000.0, 7_880_400.0, 7_910_900.0]
    rows = [GridPoint(name, (), 0, {}, {}) for name in "ab"]
    points = [
        row._replace(
            figures={"bytes_sent": tuple(size + more for size in sizes)},
            by_seed={seed: {"bytes_sent": size + more} for seed, size in enumerate(sizes)},
        )
        for row, more in zip(rows, (0, 12_800), strict=True)
    ]
    found = SweepTable(points, ["bytes_sent"], frozenset())
    assert "- bytes sent, b against a: +12.8 kB in every run\n" in found.markdown()
    assert found.best("bytes_sent") == {0}


def named(points: list[GridPoint], name: str) -> list[GridPoint]:
    """The points with their test accuracies as the metric `name`."""
    return [
        each._replace(
            figures={name: each.figures["test_accuracy"]},
            by_seed={seed: {name: found["test_accuracy"]} for seed, found in each.by_seed.items()},
        )
        for each in points
    ]


def test_constants_that_differ_by_rounding_from_seed_to_seed_are_constants() -> None:
    near = [point(name, [value * (1 + seed * 3e-16) for seed in range(4)]) for name, value in (("a", 0.5), ("b", 0.7))]
    (found,) = SweepTable(named(near, "virtual_duration_s"), [], frozenset()).found("virtual_duration_s")
    assert (found.tested, found.holds) == (False, True)
    apart = [point("a", [0.5] * 4), point("b", [0.5 + seed * 1e-5 for seed in range(4)])]
    (found,) = SweepTable(apart, ["test_accuracy"], frozenset()).found("test_accuracy")
    assert found.tested


@pytest.mark.parametrize("name", ["test_accuracy", "test_mae", "mean_personal_accuracy", "late"])
def test_what_is_the_same_in_a_few_runs_may_be_so_by_chance(name: str) -> None:
    """Two runs that got 80 of 100 examples right and two that got 81 are no proof."""
    points = named([point("a", [0.80, 0.80]), point("b", [0.81, 0.81])], name)
    (found,) = SweepTable(points, [name], frozenset()).found(name)
    assert (found.tested, found.holds, found.p) == (True, False, 0.5)
    for exact in ("bytes_sent", "rounds", "virtual_duration_s", "error"):
        (found,) = differences(named([point("a", [8, 8]), point("b", [9, 9])], exact), exact)
        assert (found.tested, found.holds) == (False, True)


def test_a_mean_of_fewer_runs_than_its_row_says_of_how_many() -> None:
    points = [
        each._replace(figures={"test_accuracy": each.figures["test_accuracy"], "test_loss": found})
        for each, found in zip(POINTS, [(0.5,), (0.5, 0.5), (0.5,) * 4], strict=True)
    ]
    table = SweepTable(points, ["test_accuracy", "test_loss"], frozenset())
    cells = [line.split(" | ")[1:] for line in table.markdown().splitlines() if line.endswith("|")][2:]
    assert [(runs, loss.strip(" |*")) for runs, _, loss in cells] == [
        ("4", "0.5 (of 1 run)"),
        ("4", "0.5 (of 2 runs)"),
        ("4", "0.5"),
    ]
    assert [row[1].strip() for row in parse_latex(table.latex("a"))[1:]] == ["4", "", "4", "", "4", ""]
    losses = said_by(table).partition("a: test loss")[2]
    assert re.search(r"plain +4 +0\.5 \(of 1 run\)", losses)


def test_runs_that_did_not_pass_are_counted_and_never_the_best() -> None:
    """A fleet that dies in its first round sends the fewest bytes."""
    sent = {"dead": (1e6, 1.1e6, 1.2e6), "good": (5e6, 5.1e6, 5.3e6), "worse": (9e6, 9.1e6, 9.3e6)}
    points = [
        GridPoint(
            name,
            (),
            0,
            {"bytes_sent": found, "not_passed": (float(name == "dead"), 0.0, 0.0)},
            {seed: {"bytes_sent": value} for seed, value in enumerate(found)},
        )
        for name, found in sent.items()
    ]
    table = SweepTable(points, ["bytes_sent"], frozenset())
    assert table.best("bytes_sent") == {1}
    assert "| dead | 3 (1 did not pass) | 1.1 MB" in table.markdown()
    assert "Bold: the best mean of the rows in which all runs passed, and the next ones" in table.markdown()
    assert parse_latex(table.latex("a"))[1][1].strip() == "3 (1 did not pass)"
    assert re.search(r"dead +3 \(1 did not pass\)", said_by(table))


def test_an_interval_and_a_corrected_p_do_not_seem_to_contradict_each_other() -> None:
    """Of each pair the interval may exclude 0 where p, corrected for three, is above the level."""
    points = [point("a", [0.80, 0.82, 0.81]), point("b", [0.84, 0.88, 0.88]), point("c", [0.90, 0.75, 0.80])]
    table = SweepTable(points, ["test_accuracy"], frozenset())
    nearest = min(table.found("test_accuracy"), key=lambda each: each.p)
    assert nearest.low > 0
    assert nearest.p < 0.05 < nearest.p_holm
    once = f"p {nearest.p:.2g}, corrected for 3 comparisons {nearest.p_holm:.2g}"
    lines = said_by(table).splitlines()
    assert sum(line.endswith(f"), {once}: does not hold") for line in lines) == 1
    assert lines[-1] == "an interval is that of its pair alone; p is corrected for 3 comparisons"
    assert f"{once}: does not hold" in table.markdown()
    assert "An interval is that of its pair alone, without this correction." in table.markdown()


def test_what_is_the_same_in_every_run_of_a_point_has_neither_deviation_nor_interval() -> None:
    same = [each._replace(figures={"bytes_sent": (3e6, 3e6)}) for each in POINTS]
    assert "| new_method | 2 | 3 MB |" in SweepTable(same, ["bytes_sent"], frozenset()).markdown()


def test_nothing_is_cut_on_a_narrow_terminal() -> None:
    said = io.StringIO()
    many = [
        each._replace(figures=dict.fromkeys(["test_accuracy", "train_loss", "bytes_sent"], (0.5, 0.6)))
        for each in POINTS
    ]
    SweepTable(many, ["test_accuracy", "train_loss", "bytes_sent"], frozenset()).show("a", Console(file=said, width=80))
    assert "…" not in said.getvalue()
    assert all(name in said.getvalue() for name in ("new_method", "same_method", "train loss", "bytes sent"))


def test_what_is_the_same_in_every_run_is_said_and_not_tested(tmp_path: Path) -> None:
    sent = {"plain": 1_000_000.0, "new_method": 3_000_000.0, "same_method": 1_000_000.0}
    points = [
        each._replace(by_seed={seed: {"bytes_sent": sent[each.values[0][1]] + near * seed} for seed in range(4)})
        for each, near in zip(POINTS, (0, 0, 0.5), strict=True)
    ]
    table = SweepTable(points, ["bytes_sent"], frozenset())
    constant, varying, other = table.found("bytes_sent")
    assert (constant.tested, varying.tested, other.tested) == (False, True, True)
    assert constant.holds
    assert varying.p_holm == max(2 * min(varying.p, other.p), varying.p), "two are tested, and corrected for two"
    assert "- bytes sent, new_method against plain: +2 MB in every run\n" in table.markdown()
    points[2] = points[2]._replace(by_seed=points[0].by_seed)
    table = SweepTable(points, ["bytes_sent"], frozenset())
    assert "same_method against plain" not in table.markdown(), "what is nowhere different is no finding"
    table.write_differences(tmp_path / "differences.csv")
    with (tmp_path / "differences.csv").open() as file:
        assert {(row["p"], row["p_holm"]) for row in csv.DictReader(file)} == {("", "")}


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ((("algorithm.lr", "0.1"), ("topology", "ring")), "lr=0.1, ring"),
        ((("algorithm.name", "dfedavg"), ("algorithm.nesterov", "true")), "dfedavg, nesterov=true"),
        ((("algorithm.lr", "1"), ("algorithm.optimizer.lr", "2")), "algorithm.lr=1, algorithm.optimizer.lr=2"),
        ((("links.default.latency", "20ms"),), "latency=20ms"),
        ((("wait.on_missing", "self"),), "on_missing=self"),
    ],
)
def test_a_row_says_which_key_has_its_value(values: tuple[tuple[str, str], ...], name: str) -> None:
    assert name_of("", values) == name
    assert name_of("case", values) == f"case, {name}"


def said_by(table: SweepTable) -> str:
    """What the terminal has of a table."""
    said = io.StringIO()
    table.show("a", Console(file=said, width=300))
    return said.getvalue()


def test_the_terminal_says_of_each_figure_what_holds_and_what_does_not() -> None:
    points = [
        each._replace(
            figures={"test_accuracy": (0.5,) * 4, "bytes_sent": (1e6, 2e6, 3e6, 4e6)},
            by_seed={seed: {"test_accuracy": found, "bytes_sent": 1e6} for seed, found in enumerate(values)},
        )
        for each, values in zip(POINTS, (WORSE, BETTER, SAME), strict=True)
    ]
    first, _, rest = said_by(SweepTable(points, ["test_accuracy", "bytes_sent"], frozenset())).partition(
        "a: bytes sent"
    )
    told = [line for line in first.splitlines() if "against" in line]
    assert [line.endswith(": holds") for line in told] == [True, True, False]
    assert told[2].startswith("test accuracy, same_method against new_method: +0.0 points (")
    assert told[2].endswith(": does not hold")
    assert "against" not in rest


@pytest.mark.parametrize("log", [False, True])
def test_of_many_differences_that_do_not_hold_the_terminal_has_number_and_largest(log: bool) -> None:
    """Of five points ten pairs are compared; the largest difference is between the first and the last one."""
    points = [point(f"m{n}", [0.5 * 1.1 ** (n * (-1) ** seed / (1 + seed)) for seed in range(4)]) for n in range(5)]
    told = said_by(SweepTable(points, ["test_accuracy"], frozenset(["test_accuracy"] * log)))
    assert told.count("does not hold") == 0
    assert "test accuracy: 10 differences do not hold; the largest is m4 against m0: " in told
    assert said_by(SweepTable(points[:4], ["test_accuracy"], frozenset())).count("does not hold") == 6


def test_bytes_have_their_unit_on_the_axis(tmp_path: Path) -> None:
    points = [GridPoint("", (("nodes", str(n)),), 0, {"bytes_sent": (n * 1e7, n * 1.1e7)}) for n in (2, 4, 8)]
    drawn = FigureSpec(y="bytes_sent", x="nodes")
    figure = figure_of(points, drawn)
    FigureCanvasAgg(figure).draw()
    assert "80 MB" in [label.get_text() for label in figure.axes[0].get_yticklabels()]
    draw(points, drawn, tmp_path / "figures" / "sent.png")
    assert {file.name for file in (tmp_path / "figures").iterdir()} == {"sent.png", "sent.pdf"}
    pdf = (tmp_path / "figures" / "sent.pdf").read_bytes()
    assert b"/TrueType" in pdf or b"/CIDFontType2" in pdf
    assert b"/Type3" not in pdf


def test_a_band_is_the_interval_over_seeds() -> None:
    same = band([([1, 2], [0.0, 1.0]), ([1, 2], [0.2, 0.8])])
    assert same.at == (1, 2)
    assert (same.found[0].mean, same.found[1].mean) == pytest.approx((0.1, 0.9))
    assert same.found[0].low < 0.0 < 0.2 < same.found[0].high
    between = band([([0, 4], [0.0, 4.0]), ([1, 3], [1.0, 3.0])])
    assert (between.at[0], between.at[-1]) == (1, 3)
    assert all(each.mean == pytest.approx(x) for x, each in zip(between.at, between.found, strict=True))


@pytest.mark.parametrize(
    ("case", "values", "name"),
    [
        ("", (("algorithm.name", "dfedavg"), ("links.default.loss", "10%")), "dfedavg_loss-10%_seed-3"),
        (
            "a case, in words",
            (("algorithm", "{name: osgp, lr: 0.1}"),),
            "a-case-in-words_algorithm-name-osgp-lr-0.1_seed-3",
        ),
    ],
)
def test_runs_have_names_that_a_person_reads(case: str, values: tuple[tuple[str, str], ...], name: str) -> None:
    assert name_run(Cell(case, values, 3, ())) == name


def test_a_sweep_leaves_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of figures its learning curves: test_sweep.py and test_curves.py have the others."""
    for drawer in ("curves.draw_curves", "plots.draw"):
        monkeypatch.setattr(f"netdfl.study.{drawer}", lambda *drawn, **how: None)
    (tmp_path / "swept.yaml").write_text(SCENARIO.replace("_50%_&_more", ""))
    vary = ["algorithm.name=dpsgd,dfedavg", "links.default.latency=5ms,20ms"]
    assert sweep(tmp_path / "swept.yaml", vary, out=tmp_path, seeds=2, jobs=2, console=Console(file=io.StringIO())) == 0
    out = tmp_path / "swept"
    assert (out / "runs" / "dfedavg_latency-5ms_seed-1" / "result.json").is_file()
    assert len(list((out / "runs").iterdir())) == 8
    for name in ("error", "consensus_distance"):
        assert {(out / "figures" / f"{name}_learning.{kind}").stat().st_size > 0 for kind in ("png", "pdf")} == {True}
    table = parse_latex((out / "table.tex").read_text())
    assert [cell.strip() for cell in table[0][:3]] == [
        "algorithm",
        "latency of links",
        "error (distance to the known answer)",
    ]
    assert len(table) == 1 + 2 * 4, "a heading, and of each point a row of means and one of intervals"
    with (out / "differences.csv").open() as lines:
        found = list(csv.DictReader(lines))
    assert {row["figure"] for row in found} >= {"error", "consensus_distance"}
    assert len([row for row in found if row["figure"] == "error"]) == 4


def test_points_that_are_equal_seed_by_seed_are_named_once() -> None:
    twins = SweepTable([*POINTS, point("twin", WORSE)], ["test_accuracy"], frozenset())
    assert TABLE.alike() == []
    (line,) = twins.alike()
    assert line.startswith("twin and plain are equal in every figure")
    assert f"- {line}\n" in twins.markdown()


def test_what_methods_send_alike_does_not_make_them_one() -> None:
    points = [GridPoint("", (("algorithm.name", name),), 0, {}, {0: {"bytes_sent": 7.0}}) for name in ("a", "b")]
    assert SweepTable(points, ["bytes_sent"], frozenset()).alike() == []
