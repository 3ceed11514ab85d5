"""FedScale's devices and availability become tables; of a pickle nothing but plain data is read."""

from __future__ import annotations

import csv
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from netdfl.cli.commands import make_app
from netdfl.core.errors import InputError
from netdfl.core.plain_pickle import plain_pickle
from netdfl.scenario.build import compile_schedule
from netdfl.scenario.load import load
from netdfl.scenario.measured.fedscale import convert
from netdfl.worlds.simulated.compute_table import read_compute_table

LINKS = Path(__file__).resolve().parents[2] / "docs" / "links.md"
CAPACITY = {n + 1: {"computation": 1.5 * (n + 1), "communication": 800.0 + n} for n in range(20)}
TRACE = {
    1: {"duration": 100, "inactive": [50, 90], "finish_time": 100, "active": [0, 60], "model": "m"},
    2: {"duration": 100, "inactive": [40], "finish_time": 100, "active": [10]},
    3: {"duration": 100, "inactive": [20], "finish_time": 100, "active": [70]},
    4: {"duration": 100, "inactive": [], "finish_time": 100, "active": []},
}
SAID = {"schema": "netdfl/1", "name": "phones", "nodes": 4, "rounds": 2, "algorithm": "dpsgd", "topology": "full"}
SAID |= {"task": {"kind": "consensus", "dim": 2}, "world": "simulated"}


def pickled(folder: Path, data: object, name: str = "client_device_capacity") -> Path:
    (folder / name).write_bytes(pickle.dumps(data))
    return folder / name


def rows(file: Path) -> list[dict[str, str]]:
    with file.open() as lines:
        return list(csv.DictReader(lines))


def test_devices_become_compute_times_and_links_of_a_scenario(tmp_path: Path) -> None:
    out = tmp_path / "tables" / "devices.csv"
    done = convert(pickled(tmp_path, CAPACITY), out)
    assert (done.kind, done.num_nodes, done.num_devices) == ("devices", 20, 20)
    assert rows(out)[2] == {
        "node": "2", "device": "3", "compute_ms": "4.5", "uplink_kbps": "802", "downlink_kbps": "802",
    }  # fmt: skip
    assert read_compute_table(str(out))[:2] == [[1_500_000], [3_000_000]]
    world = {"kind": "simulated", "compute": {"kind": "table", "file": str(out), "scale": 96}}
    found = load(SAID | {"world": world, "links_from": {"file": str(out)}})
    assert found.links["0"].written()["uplink"].rate == 800e3
    assert sorted(found.links) == ["0", "1", "2", "3"]


def test_devices_are_drawn_by_the_seed(tmp_path: Path) -> None:
    source = pickled(tmp_path, CAPACITY)
    drawn = {}
    for seed in (0, 0, 1):
        convert(source, tmp_path / "d.csv", nodes=5, seed=seed)
        again = [row["device"] for row in rows(tmp_path / "d.csv")]
        assert drawn.setdefault(seed, again) == again
        assert len(set(again)) == 5
    assert drawn[0] != drawn[1]
    with pytest.raises(InputError, match=r"has 20 devices, fewer than --nodes 21; ask for no more"):
        convert(source, tmp_path / "d.csv", nodes=21)


def test_availability_becomes_churn_of_a_scenario(tmp_path: Path) -> None:
    out = tmp_path / "absences.csv"
    assert convert(pickled(tmp_path, TRACE, "client_behave_trace"), out).kind == "availability"
    assert [(row["node"], row["leave_s"], row["join_s"]) for row in rows(out)] == [
        ("0", "50", "60"), ("0", "90", "100"),  # away where it is inactive, to the end of the trace
        ("1", "0", "10"), ("1", "40", "100"),  # away before it is active at first
        ("2", "20", "70"),  # it was there before it is inactive at first
    ]  # fmt: skip
    events = compile_schedule(load(SAID | {"events": [{"from": "0s", "churn": "all", "file": str(out)}]}))
    assert [event.at_ns for event in events if event.action == "crash" and event.nodes == (1,)] == [0, 40 * 10**9]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, r"is no file of FedScale: expected \{device: \{computation"),
        ([1, 2], r"is no file of FedScale"),
        ({1: {"speed": 3}}, r"device 1 has speed: expected"),
        ({1: {"computation": "fast", "communication": 1.0}}, r"device 1: computation is 'fast', expected a number"),
        ({1: {"computation": float("nan"), "communication": 1.0}}, r"device 1: computation is nan"),
        ({1: {"computation": 1.0, "communication": 0.0}}, r"device 1: .*communication 0 are no speeds; mend or leave"),
        ({1: {"computation": -1.0, "communication": 2.0}}, r"device 1: computation -1 .*are no speeds"),
        ({1: {"active": [0], "inactive": [-5]}}, r"device 1: inactive is no list of seconds from 0 on"),
        ({1: {"active": 0, "inactive": [5]}}, r"device 1: active is no list of seconds"),
        (
            {1: {"active": [0], "inactive": [9], "finish_time": 9}},
            r"none of the 1 devices is ever away; leave churn out",
        ),
    ],
)
def test_what_is_no_such_file_is_refused_and_nothing_is_written(data: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        convert(pickled(tmp_path, data), tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


class Runs:
    """What would make a file if it were unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


def test_nothing_of_a_pickle_is_run(tmp_path: Path) -> None:
    made = tmp_path / "made"
    for data in (Runs(made), {1: {"computation": Runs(made), "communication": 1.0}}, np.float64(3.0), {1: np.zeros(2)}):
        source = pickled(tmp_path, data)
        with pytest.raises(InputError, match=r"is no pickle of plain data \(UnpicklingError: it names .*, which would"):
            plain_pickle(source)
    assert not made.exists()
    plain = {1: [1.5, "a", (None, True)], "b": {b"c", 2}}
    assert plain_pickle(pickled(tmp_path, plain)) == plain


def test_what_is_no_pickle_is_refused_with_its_name(tmp_path: Path) -> None:
    for text in (b"", b"not a pickle", pickle.dumps(CAPACITY)[:-20], b"\x80\x04K\x01"):
        (tmp_path / "p").write_bytes(text)
        with pytest.raises(InputError, match=r"p is no pickle of plain data"):
            plain_pickle(tmp_path / "p")
    with pytest.raises(InputError, match=r"can't read .*gone: No such file"):
        plain_pickle(tmp_path / "gone")


def test_the_commands_of_the_page_say_how_a_scenario_names_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pickled(tmp_path, CAPACITY)
    pickled(tmp_path, {device: TRACE[1] for device in range(30)}, "client_behave_trace")
    shown = re.findall(
        r"^\$ netdfl (data convert .*)\n((?:(?!\$|```).*\n)*)", LINKS.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(shown) == 2
    for command, lines in shown:
        printed = CliRunner().invoke(make_app(), command.split()).output
        for line in lines.splitlines():
            first, _, last = line.partition("...")
            assert any(each.startswith(first) and each.endswith(last) for each in printed.splitlines()), printed
    assert len(rows(tmp_path / "devices.csv")) == 16
    assert len(rows(tmp_path / "absences.csv")) == 32
