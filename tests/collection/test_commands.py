"""`netdfl runs` and `netdfl query`, as typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from netdfl.cli.commands import make_app
from netdfl.core.errors import InputError
from tests.collection.conftest import Plant


def typed(*words: str | Path) -> str:
    """What a command prints. Raises what it raises."""
    done = CliRunner().invoke(make_app(), [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def three(plant: Plant, folder: Path) -> Path:
    plant("a", at=0, lines={"seed: 3": "seed: 1"}, seed=1, verdict="fail", error=0.5)
    plant("b", at=60, lines={"seed: 3": "seed: 2"}, seed=2, error=0.25)
    plant("c", at=120, lines={"delay: 5ms": "delay: 8ms"}, seed=3, error=0.75)
    return folder


def test_list_has_the_newest_first_with_date_verdict_figure_and_what_differs(three: Path) -> None:
    head, *rows, told = typed("runs", "list", three).splitlines()
    assert head.split() == ["started", "place", "verdict", "error", "nbytes", "seed", "links.default.latency.delay"]
    assert [row.split()[2] for row in rows] == ["c", "b", "a"]
    assert rows[2].startswith("2023-11-14 22:13:20  a      fail     0.5 ")
    assert told == "3 of 3 runs"
    first = typed("runs", "list", three, "--sort", "error", "--up", "--most", "1").splitlines()
    assert (first[1].split()[2], first[2]) == ("b", "3 of 3 runs, of which 1 are shown (--most)")
    chosen = json.loads(typed("runs", "list", three, "--filter", "delay > 5ms", "--format", "json"))
    assert [(row["place"], row["keys"]["links.default.latency.delay"]) for row in chosen] == [("c", "8ms")]


def test_list_has_the_algorithm_and_the_size_where_runs_differ_in_them(plant: Plant, folder: Path) -> None:
    plant("a", algorithm="osgp", nodes=4)
    plant("b", algorithm="dpsgd", nodes=6)
    head, *rows, _ = typed("runs", "list", folder).splitlines()
    assert head.split() == ["started", "place", "verdict", "error", "nbytes", "algorithm", "nodes", "seed"]
    assert {tuple(row.split()[-3:-1]) for row in rows} == {("dpsgd", "6"), ("osgp", "4")}


def test_a_run_is_found_by_the_reason_of_its_verdict(plant: Plant, folder: Path) -> None:
    stalled = "stalled at the end: node 2 waits for node 1; nothing passes between nodes 0 and 3"
    plant("a", at=0, verdict="fail", reasons=[stalled])
    plant("b", at=60, verdict="pass")

    def places(text: str) -> list[str]:
        rows = typed("runs", "list", folder, "--filter", text).splitlines()[1:-1]
        return [row.split()[2] for row in rows]

    assert places("stalled") == places("fail stall") == places("why ~ 'waits for node 1'") == ["a"]
    assert places("pass") == ["b"]  # it is a verdict, not a part of a reason
    assert ["reason", stalled] in [line.split(maxsplit=1) for line in typed("runs", "show", folder / "a").splitlines()]
    assert stalled in typed("query", "select reasons from runs where verdict = 'fail'", folder)


def test_runs_that_stalled_are_found_and_a_name_that_is_a_column_is_told(plant: Plant, folder: Path) -> None:
    plant("a", at=0, stalls=[{}, {}], deadlocks=[{}])
    plant("b", at=60)
    head, row, told = typed("runs", "list", folder, "--filter", "stalls > 0").splitlines()
    assert (head.split()[-2:], row.split()[-2], told) == (["stalls", "seed"], "3", "1 of 2 runs")
    assert "stalls" not in typed("runs", "list", folder, "--filter", "stalls = 0").splitlines()[0]
    assert ["stalls", "3"] in [line.split() for line in typed("runs", "show", folder / "a").splitlines()]
    assert typed("query", "select run, stalls from runs order by run", folder).split()[2:] == ["a", "3", "b", "0"]
    nothing = typed("runs", "list", folder, "--filter", "name = dpsgd").splitlines()
    assert nothing == ["0 of 2 runs", "name is the column name; did you mean algorithm.name?"]


def test_list_has_four_keys_and_names_the_others_which_can_be_chosen(plant: Plant, folder: Path) -> None:
    changed = {"time: 10ms": "time: 20ms", "dim: 2": "dim: 5", "init: normal": "init: ones"}
    changed |= {"deadline: auto": "deadline: none", "stale: 0": "stale: 1"}
    for place, delay in enumerate(["5ms", "6ms", "7ms"]):
        plant(f"run{place}", at=place, lines={**(changed if place else {}), "delay: 5ms": f"delay: {delay}"})
    head, *rows, told, further, how = typed("runs", "list", folder).splitlines()
    keys = ["links.default.latency.delay", "world.compute.time", "task.dim", "task.init"]
    assert (head.split()[-4:], len(rows), told) == (keys, 3, "3 of 3 runs")
    assert further == "+2 more keys differ: wait.deadline, wait.stale"
    assert how == "choose columns with --columns, like --columns wait.deadline,accuracy"
    head, first, *rest = typed("runs", "list", folder, "--columns", "stale, deadline,momentum").splitlines()
    assert head.split() == ["place", "wait.stale", "wait.deadline", "algorithm.momentum"]
    assert (first.split(), rest[2:]) == (["run2", "1", "none", "0.0"], ["3 of 3 runs"])
    with pytest.raises(InputError, match="did you mean 'deadline'"):
        typed("runs", "list", folder, "--columns", "deadlin")
    with pytest.raises(InputError, match=r"means of figures alone, and task\.dim is none; leave it out of the columns"):
        typed("runs", "list", folder, "--columns", "error,dim", "--by", "dim")


def test_list_makes_groups_with_means(three: Path) -> None:
    head, *rows, told = typed("runs", "list", three, "--by", "delay").splitlines()
    assert head.split()[:3] == ["links.default.latency.delay", "runs", "verdicts"]
    assert [row.split()[:2] for row in rows] == [["5ms", "2"], ["8ms", "1"]]
    assert "1 done, 1 fail  0.375" in rows[0]
    assert told == "each mean is over runs that may differ in seed"


def test_an_empty_folder_says_how_to_make_a_run(folder: Path) -> None:
    assert typed("runs", "list", folder) == "there are no runs here yet; `netdfl run SCENARIO` makes one\n"
    with pytest.raises(InputError, match="is no folder; name a run, or a folder of runs"):
        typed("runs", "list", folder / "none")


def test_tags_a_note_and_the_archive(three: Path) -> None:
    told = typed("runs", "tag", three / "a", three / "b", "--add", "base", "--note", "first try")
    assert told == f"{three / 'a'}: base; first try\n{three / 'b'}: base; first try\n"
    assert typed("runs", "tag", three / "a", "--remove", "base", "--archive").endswith("no tags; archived; first try\n")
    assert typed("runs", "list", three).splitlines()[-1] == "2 of 3 runs; 1 archived"
    assert typed("runs", "list", three, "--archived").splitlines()[-1] == "3 of 3 runs"
    shown = typed("runs", "show", three / "b")
    assert "tags" in shown
    assert "first try" in shown
    assert "links.default.latency.delay" in shown
    with pytest.raises(InputError, match="nothing to change; give --add, --remove, --note or --archive"):
        typed("runs", "tag", three / "a")


def test_one_run_that_is_none_leaves_all_labels_as_they_were(three: Path) -> None:
    with pytest.raises(InputError, match="is not a run"):
        typed("runs", "tag", three / "a", three / "none", "--add", "x")
    assert not (three / "a/labels.json").exists()


def test_rm_moves_to_the_trash_and_refuses_all_if_one_lies_elsewhere(three: Path, tmp_path: Path) -> None:
    (three / "b").rename(tmp_path / "b")
    with pytest.raises(InputError, match="lies outside"):
        typed("runs", "rm", "--in", three, three / "a", tmp_path / "b")
    assert (three / "a").is_dir()
    (three / "latest").symlink_to("a")
    told = f"{three / 'a'} -> {three / '.trash/a'}\n"
    assert typed("runs", "rm", "--in", three, three / "a", three / "latest") == told


def test_compare_sets_figures_and_keys_side_by_side(three: Path) -> None:
    lines = typed("runs", "compare", three / "a", three / "c").splitlines()
    assert lines[:2] == [f"[1] {three / 'a'}", f"[2] {three / 'c'}"]
    rows = {line.split()[0]: line.split()[1:] for line in lines[4:]}
    assert (rows["error"], rows["verdict"]) == (["0.5", "0.75"], ["fail", "done"])
    assert rows["links.default.latency.delay"] == ["5ms", "8ms"]
    same = json.loads(typed("runs", "compare", three / "a", three / "a/../a", "--format", "json"))
    assert (same["differences"], same["warnings"]) == ({}, {})
    with pytest.raises(InputError, match="a comparison takes two runs or more"):
        typed("runs", "compare", three / "a")


def measured(value: float) -> dict[str, object]:
    """Entries of a result whose task measures `test_mae`, and the consensus distance of its models."""
    course = {"last": value, "least": value / 2, "most": 9.0, "mean_last_5": 3.0}
    return {"metrics": {"test_mae": course, "mean_local_mae": course}, "consensus_distance": value / 10}


def test_metrics_of_a_task_and_of_models_are_filtered_shown_grouped_and_compared(plant: Plant, folder: Path) -> None:
    plant("a", at=0, **measured(5.0))
    plant("b", at=60, lines={"dim: 2": "dim: 5"}, **measured(20.0))
    plant("c", at=120, consensus_distance=None)  # its task has no such metric
    head, *rows, _ = typed("runs", "list", folder, "--filter", "consensus_distance < 1 mae < 10").splitlines()
    assert [row.split()[2] for row in rows] == ["a"]
    assert (head.split()[3:6], rows[0].split()[5]) == (["error", "test_mae", "nbytes"], "5")
    columns = ("--columns", "mae,mean_local_mae,consensus_distance", "--sort", "test_mae", "--up")
    head, *rows, _ = typed("runs", "list", folder, *columns).splitlines()
    assert head.split() == ["place", "test_mae", "mean_local_mae", "consensus_distance"]
    assert [row.split()[:3] for row in rows] == [["a", "5", "5"], ["b", "20", "20"], ["c", "–", "–"]]
    assert "mean test_mae" in typed("runs", "list", folder, "--by", "dim")
    head, *rows = typed("runs", "list", folder, "--by", "dim", "--columns", "mae,consensus_distance").splitlines()
    assert head.split()[3:] == ["mean", "test_mae", "mean", "consensus_distance"]
    assert [row.split()[-2:] for row in rows] == [["5", "0.5"], ["20", "2"]]
    lines = typed("runs", "compare", folder / "a", folder / "b").splitlines()
    found = {line.split()[0]: line.split()[1:] for line in lines[3:]}
    assert (found["test_mae"], found["consensus_distance"]) == (["5", "20"], ["0.5", "2"])
    assert ["test_mae", "5"] in [line.split() for line in typed("runs", "show", folder / "a").splitlines()]
    with pytest.raises(InputError, match=r"columns are started, .*, test_mae, .*, and keys|did you mean 'test_mae'"):
        typed("runs", "list", folder, "--filter", "rho < 1")


def test_runs_that_differ_by_no_key_say_by_what_they_differ(plant: Plant) -> None:
    runs = [plant("first"), plant("second", seed=7), plant("third", seed=8, nodes=9)]

    def told(*compared: Path) -> str:
        return typed("runs", "compare", *compared).splitlines()[-1]

    assert told(*runs[:2]) == "their scenarios are the same but for the seed: 3, 7"
    assert told(*runs) == "their scenarios are the same but for the nodes: 4, 9; the seed: 3, 7, 8"
    assert (
        told(runs[0], runs[0] / "../first")
        == "they are made alike: the same scenario, seed, modules, files and packages"
    )


def test_show_and_compare_have_warnings_and_the_virtual_duration(plant: Plant) -> None:
    warnings = [{"kind": "timeouts", "text": "deadlines ended 67 of 160 waits (42%)"}]
    first, second = plant("first", warnings=warnings, virtual_duration_s=4.76), plant("second", virtual_duration_s=1.4)
    shown = dict(line.split(maxsplit=1) for line in typed("runs", "show", first).splitlines() if line)
    assert (shown["warning"], shown["virtual_duration_s"]) == ("deadlines ended 67 of 160 waits (42%)", "4.76 s")
    lines = typed("runs", "compare", first, second).splitlines()
    assert lines[2] == "[1] warning: deadlines ended 67 of 160 waits (42%)"
    assert "virtual_duration_s  4.76 s" in "\n".join(lines)
    found = json.loads(typed("runs", "show", second, "--format", "json"))
    assert (found["warnings"], found["virtual_duration_s"]) == ([], 1.4)


def test_query_answers_in_each_form(three: Path, tmp_path: Path) -> None:
    sql = "select run, error from runs order by error"
    assert typed("query", sql, three).split() == ["run", "error", "b", "0.25", "a", "0.5", "c", "0.75"]
    assert typed("query", sql, three, "--format", "csv") == "run,error\nb,0.25\na,0.5\nc,0.75\n"
    typed("query", sql, three, "--format", "json", "--out", tmp_path / "found.json")
    assert json.loads((tmp_path / "found.json").read_text())[0] == {"run": "b", "error": 0.25}
    typed("query", sql, three, "--format", "parquet", "--out", tmp_path / "found.parquet")
    assert (tmp_path / "found.parquet").read_bytes()[:4] == b"PAR1"
    with pytest.raises(InputError, match="parquet is written to a file; name it with --out FILE"):
        typed("query", sql, three, "--format", "parquet")
    assert "metrics: numbers by round" in typed("query", "--tables")
    with pytest.raises(InputError, match="a query is one SELECT over these tables"):
        typed("query")
