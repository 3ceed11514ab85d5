"""What the doctor says of machines: by facts alone, and of this machine and separated ones."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from netdfl.core.files import shipped
from netdfl.doctor.checks import HERE, MachineFacts, Severity, judge, lines
from netdfl.doctor.gather import gather
from netdfl.host.facts import facts
from netdfl.scenario.load import load
from tests.machines.separated import Separated, missing
from tests.warm import warm_python


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    return facts({"names": ["localhost"], "datasets": ["digits"]})


def bad(known: MachineFacts, **how: Any) -> dict[tuple[str, str], str]:
    return {(each.machine, each.what): each.remedy for each in judge(known, **how) if each.state is Severity.FAIL}


def test_a_machine_like_this_one_is_fit(here: dict[str, Any]) -> None:
    assert bad(MachineFacts({HERE: here, "m1": here}, {"m1": 0.2})) == {}


@pytest.mark.parametrize(
    ("change", "what", "remedy"),
    [
        ({"python": "3.8.1"}, "python", "install Python"),
        ({"source": "another"}, "code", "install netdfl anew"),
        ({"versions": {"netdfl": "0.0.1"}}, "versions", "netdfl 0.0.1,"),
        ({"versions": {"torch": "0.0.1"}}, "versions", "torch 0.0.1,"),
        ({"listens": "Cannot assign requested address"}, "ports", "world.network"),
        ({"names": {"node7": ""}}, "names", "/etc/hosts"),
        ({"datasets": {"mnist": False}}, "data", "netdfl data get mnist"),
        ({"gpus": 0}, "hardware", "CUDA"),
    ],
)
def test_what_is_wrong_there_is_named_with_what_to_do(
    here: dict[str, Any], change: dict[str, Any], what: str, remedy: str
) -> None:
    versions = here["versions"] | change.get("versions", {})
    there = here | change | {"versions": versions}
    found = bad(MachineFacts({HERE: here | {"gpus": 1}, "m1": there}), device="cuda" if "gpus" in change else "cpu")
    assert list(found) == [("m1", what)]
    assert remedy in found["m1", what]


def test_what_changes_no_digit_is_a_warning_and_torch_where_nothing_trains_is_nothing(here: dict[str, Any]) -> None:
    grpc, torch = (here | {"versions": here["versions"] | {name: "0.0.1"}} for name in ("grpcio", "torch"))
    found = judge(MachineFacts({HERE: here, "m1": grpc, "m2": torch}), trains=False)
    states = {each.machine: each.state for each in found if each.what == "versions"}
    assert states == {HERE: Severity.OK, "m1": Severity.WARNING, "m2": Severity.OK}


def test_clocks_silent_machines_and_ways_that_nothing_takes(here: dict[str, Any]) -> None:
    way = {"src": "m1", "dst": "m2", "round_trip_s": "No route to host"}
    known = MachineFacts({HERE: here, "m1": here}, {"m1": -100_000.0}, [way], {"m2": "it ended"})
    assert set(bad(known)) == {("m1", "clock"), ("m1 → m2", "network"), ("m2", "start")}
    text = "\n".join(lines(judge(known)))
    assert "not reached: No route to host" in text
    assert "3 must be mended before a fleet runs here" in text


def test_a_world_that_cannot_run_here_is_bad_only_where_it_is_asked_for(here: dict[str, Any]) -> None:
    known = MachineFacts({HERE: here}, worlds={"namespaces": "it needs root"})
    assert bad(known) == {}
    assert set(bad(known, wanted="namespaces")) == {(HERE, "world namespaces")}


def test_names_of_nodes_by_hand_are_looked_up(tmp_path: Path) -> None:
    """As docs/machines.md calls it."""
    (tmp_path / "peers.yaml").write_text("{0: 'localhost:5000', 1: 'nowhere.invalid:5000'}", encoding="utf-8")
    command = [warm_python(), "-m", "netdfl", "doctor", "--peers", "peers.yaml", "--format=json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    found = json.loads(done.stdout)
    assert set(found["facts"][HERE]["names"]) == {"localhost", "nowhere.invalid"}
    (failed,) = (each for each in found["findings"] if (each["what"], each["state"]) == ("names", "fail"))
    assert "nowhere.invalid" in json.dumps(failed)
    assert done.returncode == 1


def test_a_port_of_this_machine_that_somebody_has_is_named(here: dict[str, Any]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        found = facts({"addresses": [taken, "127.0.0.1:0", "192.0.2.1:5000", "nowhere.invalid:5000"]})["taken"]
    assert list(found) == [taken]
    ports = [each for each in judge(MachineFacts({HERE: here | {"taken": found}})) if each.state is Severity.FAIL]
    assert [(each.what, each.said) for each in ports] == [("ports", f"{taken}: Address already in use")]


@pytest.mark.parametrize("dataset", ["mnist", "{name: mnist, partition: iid}"])
def test_the_dataset_of_a_scenario_is_looked_for(dataset: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NETDFL_DATA", str(tmp_path))
    text = (shipped("scenarios") / "quickstart.yaml").read_text()
    (changed := tmp_path / "mine.yaml").write_text(re.sub("dataset: .*", f"dataset: {dataset}", text))
    assert bad(gather(load(changed)))[HERE, "data"] == "netdfl data get mnist there, or set NETDFL_DATA"


@pytest.mark.skipif(bool(missing()), reason=missing() or "they can be made here")
def test_separated_machines_are_looked_at_and_a_cut_cable_is_found() -> None:
    from tests.machines.separated import ip

    with Separated(2) as machines:
        ip("-n", machines.names[1], "route", "add", "blackhole", f"{machines.address(0)}/32")
        kind = "world.kind=tests.machines.separated:SEPARATED"
        command = [warm_python(), "-m", "netdfl", "doctor", "--format=json", "--set", kind]
        done = subprocess.run(
            [*command, "--set", f"world.machines={machines.told}"], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 1, done.stdout + done.stderr
        found = json.loads(done.stdout)
    first, second = machines.names
    assert list(found["facts"]) == [HERE, first, second]
    assert [found["facts"][name]["host"] for name in machines.names] == machines.names
    failed = [(each["machine"], each["what"]) for each in found["findings"] if each["state"] == "fail"]
    assert failed == [(f"{first} → {second}", "network"), (f"{second} → {first}", "network")]
    reached = {(way["src"], way["dst"]) for way in found["ways"] if isinstance(way["round_trip_s"], float)}
    assert reached == {(first, HERE), (second, HERE)}
