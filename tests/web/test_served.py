"""What a server of runs answers, to whom, and what it makes of folders that nobody should trust."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from netdfl.collection.keys import group_names
from netdfl.core.errors import InputError
from netdfl.record.holder import ask_to_stop, find_holder
from netdfl.running.run import run
from netdfl.scenario.load import loads
from netdfl.web.folder import RunFolder
from netdfl.web.many import compare
from tests.agreeing import agreeing
from tests.web.web_server import ask, first_data, started

SMALL = agreeing("small", 4, 3, "seed: 3\nlinks: {default: {latency: 5ms}}", compute="10ms")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two good runs, and copies of one that somebody damaged, each in another way."""
    root = tmp_path_factory.mktemp("served")
    good = root / "runs" / "good"
    run(loads(SMALL), out=good)
    run(loads(SMALL, ["seed=4", "links.default.latency=8ms"]), out=root / "runs" / "other", page=False)
    for name in ("cut", "linked", "foreign", "unjudged"):
        shutil.copytree(good, root / "runs" / name)
    (root / "runs/cut/graph.json").write_text('{"num_nodes": 4, "edg')
    (root / "secret").write_text("secret")
    (root / "runs/linked/fleet.json").unlink()
    (root / "runs/linked/fleet.json").symlink_to(root / "secret")
    (root / "runs/foreign/result.json").write_text('{"schema": "elsewhere/9", "hello": [1, 2]}')
    (root / "runs/unjudged/result.json").unlink()
    (root / "runs/outside").symlink_to(root)
    return root / "runs"


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    with started("serve", runs, "--no-browser") as (found, _):
        yield found


def listed(address: str) -> dict[str, dict[str, object]]:
    _, text = ask(address, f"{urlsplit(address).path}runs")
    return {row["place"]: row for row in json.loads(text)["runs"]}


def test_the_address_has_a_secret_without_which_nothing_is_answered(address: str) -> None:
    answer, page = ask(address)
    assert answer.status == 200
    assert "<title>" in page
    for path in ("/", "/runs", "/" + "x" * 32 + "/", f"/{'x' * 32}/runs"):
        answer, text = ask(address, path)
        assert (answer.status, "secret" in text) == (403, True)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1:1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
    ],
)
def test_names_and_pages_of_elsewhere_are_refused(address: str, headers: dict[str, str]) -> None:
    assert ask(address, **headers)[0].status == 403


def test_no_page_frames_it_and_it_tells_nobody_its_address(address: str) -> None:
    answer, _ = ask(address)
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["access-control-allow-origin"] is None


def test_the_only_order_is_stop_and_only_the_page_gives_it(address: str, runs: Path) -> None:
    path = f"{urlsplit(address).path}run/{listed(address)['good']['id']}/"
    assert ask(address, f"{path}stop")[0].status == 405
    assert ask(address, f"{path}stop", "POST")[0].status == 403
    own = f"http://{urlsplit(address).netloc}"
    answer, text = ask(address, f"{path}stop", "POST", Origin=own)
    assert (answer.status, text) == (409, "nothing runs there that could be asked")
    for method in ("PUT", "DELETE", "PATCH"):
        assert ask(address, path, method, Origin=own)[0].status == 405


def test_what_is_readable_is_shown_and_what_is_not_is_said(address: str, runs: Path) -> None:
    rows = listed(address)
    assert set(rows) == {"good", "other", "cut", "linked", "foreign", "unjudged"}
    assert (rows["good"]["state"], rows["good"]["verdict"]) == ("finished", "done")
    assert rows["unjudged"]["state"] == "ended"
    assert rows["foreign"]["state"] == "damaged"
    assert "can't be shown" in str(rows["foreign"]["wrong"])
    found = {name: first_data(f"{address}run/{row['id']}/") for name, row in rows.items()}
    assert found["good"]["data"]["counts"]["sent"][-1] == 24  # type: ignore[index]
    assert found["unjudged"]["data"]["head"]["verdict"] == "no verdict"  # type: ignore[index]
    assert "graph.json is damaged" in str(found["cut"]["trouble"])
    assert "fleet.json is a link" in str(found["linked"]["trouble"])
    foreign: Any = found["foreign"]["data"]
    assert foreign["head"]["verdict"] == "can't be read"
    assert foreign["counts"]["sent"][-1] == 24
    assert any("can't be shown" in each for each in foreign["troubles"])
    assert "secret" not in json.dumps(found).replace(str(runs.parent / "secret"), "")


@pytest.mark.parametrize("path", ["run/0000000000000000/", "run/../../", "run/%2e%2e/log/0", "run/good/", "log/0"])
def test_nothing_outside_the_folder_has_an_address(address: str, path: str) -> None:
    assert ask(address, f"{urlsplit(address).path}{path}")[0].status == 404


def test_scenarios_are_compared_key_by_key(runs: Path) -> None:
    found = compare([("a", runs / "good"), ("b", runs / "other"), ("c", runs / "linked")], runs)
    assert found["differences"]["seed"] == {"a": "3", "b": "4"}
    assert {"a", "b"} == set(found["curves"])
    assert "is a link" in found["wrong"]["c"]
    assert not [key for key in found["differences"] if "latency" not in key and key != "seed"]


@pytest.mark.parametrize("which", range(8))
def test_runs_are_one_group_only_where_all_keys_but_the_seed_are_equal(which: int) -> None:
    keys = [f"key{i}" for i in range(8)]
    first = {"name": "quickstart", "seed": "0"} | {key: "1" for key in keys}
    again = first | {"seed": "1"}
    others = {key: first | {key: "2"} for key in keys}
    names = group_names({"first": first, "again": again, **others})
    assert names["first"] == names["again"]
    assert len(set(names.values())) == 9
    two = group_names({"first": first, "again": again, "other": others[keys[which]]})
    assert two == {
        "first": f"quickstart, {keys[which]}: 1",
        "again": f"quickstart, {keys[which]}: 1",
        "other": f"quickstart, {keys[which]}: 2",
    }


def test_a_group_is_named_by_no_more_keys_than_tell_it_apart() -> None:
    told = {
        name: {"name": "compared", "algorithm.name": name, "algorithm.rho": rho, "algorithm.momentum": momentum}
        for name, rho, momentum in (("dfedavg", "0", "0"), ("dfedavgm", "0", "0.9"), ("dfedsam", "0.1", "0"))
    }
    assert set(group_names(told).values()) == {f"compared, algorithm.name: {name}" for name in told}
    assert group_names({"a": {"x": "1"}, "b": {}}) == {"a": "x: 1", "b": "no x"}


def test_a_row_of_a_sweeps_table_knows_its_runs(runs: Path, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    shutil.copytree(runs / "good", sweep / "cells/one")
    shutil.copytree(runs / "other", sweep / "cells/two")
    (sweep / "cells.csv").write_text("case,lr,seed,exit_code,run\n,0.1,3,0,one\n,0.1,4,0,two\n,0.2,4,0,../../secret\n")
    (sweep / "table.csv").write_text("case,lr,figure,mean\n,0.1,error,0.5\n,0.3,error,0.7\n")
    (sweep / "runs").mkdir()
    (sweep / "runs/lr-0.1_seed-3").symlink_to("../cells/one")
    found = json.loads(RunFolder(tmp_path).listed())
    tables = {table["name"]: table for table in json.loads(RunFolder(tmp_path).tables())}
    ids = {row["place"]: row["id"] for row in found["runs"]}
    assert [set(of) for of in tables["sweep/table.csv"]["runs"]] == [set(ids.values()), set()]
    assert tables["sweep/cells.csv"]["runs"] == [[ids["sweep/runs/lr-0.1_seed-3"]], [ids["sweep/cells/two"]], []]
    assert {row["tags"][0] for row in found["runs"]} == {"cells", "runs"}
    assert {row["place"] for row in json.loads(RunFolder(sweep / "cells").listed())["runs"]} == {"one", "two"}


def test_whom_to_stop_is_told_by_the_system_and_not_by_the_run(runs: Path) -> None:
    good = runs / "good"
    (good / ".lock").write_text(f"{os.getppid()}\n")
    assert find_holder(good) is None
    assert not ask_to_stop(good)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no folder"):
        RunFolder(tmp_path / "none")
