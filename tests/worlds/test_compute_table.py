"""Compute times from a table: what each node takes, by a file with a row a node."""

from __future__ import annotations

from pathlib import Path

import pytest

import netdfl
from netdfl.core.errors import InputError, ScenarioError
from netdfl.core.rng import Streams
from netdfl.scenario.load import load
from netdfl.worlds.simulated.compute import table
from netdfl.worlds.simulated.compute_table import read_compute_table

MS = 1_000_000
SAID = {"schema": "netdfl/1", "name": "timed", "nodes": 3, "rounds": 2, "algorithm": "dpsgd", "topology": "full"}
SAID |= {"task": {"kind": "consensus", "dim": 2}}
TIMES = {
    "unit in the heading": "node,compute_ms\n0,20\n1,5.5\n2,100\n",
    "units with the values": "compute\n20ms\n5500us\n0.1s\n",
    "in another order, beside others": "device;Node;Time (ms);note\nc;2;100;x\na;0;20;y\nb;1;5.5;z\n",
    "seconds": "node\tseconds\n0\t0.02\n1\t0.0055\n2\t1e-1\n",
    "a blank line": "\nduration_us\n20000\n\n5500\n100000\n",
}


def written(folder: Path, text: str) -> str:
    (folder / "times.csv").write_text(text)
    return str(folder / "times.csv")


@pytest.mark.parametrize("form", TIMES)
def test_times_are_the_same_however_the_table_says_them(form: str, tmp_path: Path) -> None:
    assert read_compute_table(written(tmp_path, TIMES[form])) == [[20 * MS], [5_500_000], [100 * MS]]


def test_rounds_take_the_times_of_a_nodes_rows_in_turn_and_scale_multiplies(tmp_path: Path) -> None:
    file = written(tmp_path, "node,compute_ms,idle_ms\n0,1,9\n1,4,8\n0,2,7\n")
    take = table(Streams(0), file=file, scale=10)
    assert [take(node, round) for node, round in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 5))] == [
        10 * MS, 20 * MS, 10 * MS, 40 * MS, 40 * MS,
    ]  # fmt: skip
    assert table(Streams(0), file=file, column="idle_ms")(1, 0) == 8 * MS
    with pytest.raises(InputError, match=r"times\.csv has times of 2 nodes, and there is a node 2; add its row"):
        take(2, 0)


def test_a_run_takes_the_times_of_the_table(tmp_path: Path) -> None:
    file = written(tmp_path, "node,compute_ms\n0,20\n1,5\n2,100\n")
    done = netdfl.run(
        SAID | {"world": {"kind": "simulated", "compute": {"kind": "table", "file": file}}}, out=tmp_path / "run"
    )
    assert done.result["virtual_duration_s"] == pytest.approx(0.2)  # two rounds, as long as the slowest takes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("node,compute_ms\n0,1\n2,1\n", r"times\.csv has no time of node 1; give each node from 0 to 2 a row"),
        ("node,compute_ms\n0,1\n1,1\n", r"times\.csv has times of 2 nodes, and there is a node 2; add its row"),
        ("node,compute_ms\n0,1\nb,1\n", r"times\.csv:3: 'b' is no node; write its number, from 0 on"),
        ("node,compute\n0,1\n", r"times\.csv:2: 1 has no unit; write it as 1ms, or call the column compute_ms"),
        ("node,compute_ms\n\n0,soon\n", r"times\.csv:3: compute_ms: 'soon'"),
        ("node,compute_ms\n0\n", r"times\.csv:2: compute_ms: ''"),
        ("node,compute_ms\n0,-1\n", r"times\.csv:2: compute_ms: '-1ms' is negative; a time is 0 or more"),
        ("node,speed\n0,1\n", r"times\.csv: none of node, speed is a compute time; expected a header with"),
        ("node,compute_ms\n", r"times\.csv has no row below its header"),
    ],
)
def test_a_table_that_lacks_something_is_refused_by_line_at_load(text: str, said: str, tmp_path: Path) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ScenarioError, match=said):
        load(SAID | {"world": {"kind": "simulated", "compute": {"kind": "table", "file": file}}})


def test_a_column_that_is_asked_for_is_named_where_it_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"times\.csv has no column idle; it has node, compute_ms"):
        read_compute_table(written(tmp_path, "node,compute_ms\n0,1\n"), "idle")
