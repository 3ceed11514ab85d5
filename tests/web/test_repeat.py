"""A run repeated from the page with other values: its form, what it would execute, and its processes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from netdfl.core.errors import InputError, ScenarioError
from netdfl.record.holder import find_holder
from netdfl.record.run import open_run
from netdfl.running.run import run
from netdfl.scenario.load import load, loads
from netdfl.scenario.loading.resolved import to_plain, to_yaml
from netdfl.web import repeats
from netdfl.web.folder import RunFolder
from netdfl.web.form import fields, modules, overrides_of, read_scenario, text_of
from netdfl.web.orders import RepeatOrder, read_repeat_order
from netdfl.web.repeat_pages import RepeatPages
from netdfl.web.repeats import COMMAND, RepeatedRuns, check, new_place
from tests.agreeing import agreeing
from tests.web.test_many_runs import asked, name_of

SMALL = agreeing("small", 4, 3, "seed: 3\nlinks: {default: {latency: 5ms}}", compute="10ms")
OWN = """
from pathlib import Path
(Path(__file__).parent / "imported").touch()
from netdfl.topology.static import ring as mine
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("repeated") / "run"
    run(loads(SMALL), out=path, page=False)
    return path


@pytest.fixture
def runs(kept: Path, tmp_path: Path) -> Path:
    shutil.copytree(kept, tmp_path / "runs/first")
    return tmp_path / "runs"


def by_key(data: object) -> dict[str, dict[str, Any]]:
    assert isinstance(data, dict)
    return {str(each["key"]): each for each in fields(data)}


def wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(0.02)


@pytest.mark.parametrize("name", ["scenarios/quickstart.yaml", "scenarios/faults/lost_message.yaml"])
def test_every_value_of_the_form_put_back_makes_the_same_scenario(name: str) -> None:
    whole = to_plain(load(name))
    found = by_key(whole)
    again = loads(to_yaml(load(name)), overrides_of({key: each["value"] for key, each in found.items()}, found))
    assert to_plain(again) == whole


@pytest.mark.parametrize(
    "value",
    ["20ms", "5%", "", "null", "true", "1", "1e-3", "a: b", "#", "- x", "two\nlines", None, True, 0.1, [1, "2"], {}],
)
def test_a_value_as_text_reads_back_as_itself(value: object) -> None:
    from netdfl.scenario.loading.overrides import parse_override

    assert parse_override(f"x={text_of(value)}").value == value


def test_fields_say_what_the_schema_says_of_the_part_that_ran() -> None:
    found = by_key(to_plain(loads(agreeing("a", 4, 3, 'links: {"0->1": {loss: 5%}, "[0..1]->2": {loss: 1%}}'))))
    assert found["nodes"]["value"] == "4"
    assert found["nodes"]["number"] is True
    assert "server" in found["nodes"]["words"]
    assert {"dpsgd", "sgp"} <= set(found["algorithm.name"]["choices"])
    assert found["algorithm.name"]["closed"] is False
    assert (found["task.init"]["choices"], found["task.init"]["closed"]) == (["normal", "integers", "ramp"], True)
    assert found["algorithm.nesterov"]["choices"] == ["true", "false"]
    assert "schema" not in found
    links = [key for key in found if key.startswith("links")]
    assert links == ["links", "links_from"]  # the dots of `[0..1]->2` are no path
    assert "0->1" in found["links"]["value"]
    alone = by_key(to_plain(loads(agreeing("a", 4, 3, 'links: {"0->1": {loss: 5%}}'))))
    assert alone["links.0->1.loss.probability"]["value"] in ("5%", "0.05")


def test_modules_are_told_without_being_imported(runs: Path) -> None:
    path = runs / "first"
    (path / "repeated_part.py").write_text(OWN)
    data = {
        **read_scenario(path),
        "topology": {"kind": "repeated_part:mine"},
        "explore": {"find": ["verdict", "far.away:found"]},
    }
    told = [
        {"module": "repeated_part:mine", "file": str(path / "repeated_part.py")},
        {"module": "far.away:found", "file": "an installed package"},
    ]
    assert modules(path, data, []) == told
    assert modules(path, data, ["topology.kind=ring"]) == told[1:]
    assert modules(path, data, ["topology={kind: ring}", "task={kind: train, model: 'x:y'}"]) == [
        told[1], {"module": "x:y", "file": "an installed package"},
    ]  # fmt: skip
    assert not (path / "imported").exists()
    assert "repeated_part" not in sys.modules


@pytest.mark.parametrize("values", [{"nowhere": "1"}, {"rounds": "1\0"}, {"rounds": "1" * 20_001}])
def test_only_fields_of_the_form_are_changed(kept: Path, values: dict[str, str]) -> None:
    with pytest.raises(InputError, match="can't be changed here"):
        overrides_of(values, by_key(read_scenario(kept)))
    with pytest.raises(ScenarioError):
        overrides_of({"rounds": "{"}, ["rounds"])


@pytest.mark.parametrize("order", ["check", "repeat"])
def test_a_repetition_is_taken_with_write_alone_from_the_page_itself_alone(runs: Path, order: str) -> None:
    path = f"/secret/run/{name_of(runs, 'first')}"
    assert asked(runs, f"{path}/{order}", "POST", b"{}", write=False)[0] == 404
    assert asked(runs, f"{path}/form", write=False)[0] == 404
    assert asked(runs, f"{path}/{order}", "GET")[0] == 405
    for headers in ({"origin": ""}, {"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert asked(runs, f"{path}/{order}", "POST", b"{}", **headers)[0] == 403
    assert asked(runs, f"/secret/run/{'0' * 16}/{order}", "POST", b"{}")[0] == 409
    status, text = asked(runs, f"{path}/{order}", "POST", b'{"values": {"rounds": 3}}')
    assert (status, "this is no repetition" in text) == (409, True)
    assert [each.name for each in runs.iterdir()] == ["first"]


def test_the_form_of_a_run_comes_from_its_place_and_a_run_served_alone_has_none(runs: Path) -> None:
    status, text = asked(runs, f"/secret/run/{name_of(runs, 'first')}/form")
    told = json.loads(text)
    assert (status, told["place"], told["modules"]) == (200, "first", [])
    assert len(told["fields"]) > 40
    alone = RepeatPages(RunFolder(runs / "first"))
    with pytest.raises(InputError, match="serve the folder that it lies in"):
        alone.form(RunFolder(runs / "first").only or "")


async def test_own_modules_are_executed_once_they_are_agreed_to_and_not_before(runs: Path) -> None:
    path, pages = runs / "first", RepeatPages(RunFolder(runs))
    (path / "repeated_part.py").write_text(OWN)
    values, id = {"topology.kind": "repeated_part:mine", "rounds": "-1"}, RunFolder(runs).name_of(path)
    told = await pages.check(id, RepeatOrder(values))
    assert (told["agreed"], told["wrong"]) == (False, "")
    assert told["modules"] == [{"module": "repeated_part:mine", "file": str(path / "repeated_part.py")}]
    with pytest.raises(InputError, match="the run would execute repeated_part:mine: agree to that first"):
        await pages.begin(id, RepeatOrder(values, ["other:mine"]))
    assert not (path / "imported").exists()
    told = await pages.check(id, RepeatOrder(values, ["repeated_part:mine"]))
    assert "--set rounds=-1: rounds is -1, expected at least 1" in str(told["wrong"])
    assert (path / "imported").exists()
    assert (await pages.check(id, RepeatOrder({"rounds": "{"})))["wrong"]


async def test_a_run_begins_as_a_child_is_counted_and_ends_with_the_server(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeats, "MOST_AT_ONCE", 1)
    folder = RunFolder(runs)
    pages, id = RepeatPages(folder), folder.name_of(runs / "first")
    with pytest.raises(InputError, match="--set rounds=0: rounds is 0, expected at least 1"):
        await pages.begin(id, RepeatOrder({"rounds": "0"}))
    told = await pages.begin(id, RepeatOrder({"rounds": "1000000", "name": "again", "seed": "5"}))
    out = runs / str(told["place"])
    assert out.parent == runs / "again"
    assert out.name.endswith("Z-5")
    assert folder.find(str(told["id"])) == out
    child = find_holder(out)
    assert child is not None
    with pytest.raises(InputError, match="1 runs that were begun here go on"):
        await pages.begin(id, RepeatOrder())
    await asyncio.to_thread(wait_for, out / "fleet.json")  # an end before its start leaves nothing to judge
    await pages.runs.aclose()
    assert find_holder(out) is None
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert open_run(out).result["verdict"] == "unknown"
    assert open_run(out).result["seed"] == 5


async def test_a_check_that_hangs_is_ended(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "CHECK_S", 0.01)
    assert "took longer" in await check(runs / "first/scenario.yaml", [])


async def test_a_run_that_does_not_come_is_ended(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "BEGIN_S", repeats.TICK_S)
    began = RepeatedRuns()
    with pytest.raises(InputError, match="had not begun"):
        await began.begin(runs / "first/scenario.yaml", [], tmp_path / "never")


def test_a_new_place_is_a_free_one(tmp_path: Path) -> None:
    first = new_place(tmp_path, "a", "7")
    assert first.parent == tmp_path / "a"
    first.mkdir(parents=True)
    assert new_place(tmp_path, "a", "7") != first


def test_an_order_to_repeat_is_read_strictly() -> None:
    assert read_repeat_order(b'{"values": {"a": "1"}, "agreed": ["m:c"]}') == RepeatOrder({"a": "1"}, ["m:c"])
    for wrong in (b"", b"[]", b'{"more": 1}', b'{"values": ["a"]}', b'{"agreed": "m:c"}'):
        with pytest.raises(InputError, match="this is no repetition"):
            read_repeat_order(wrong)


def test_a_child_whose_server_is_gone_runs_nothing() -> None:
    found = subprocess.run([sys.executable, "-c", COMMAND, "1", "--version"], capture_output=True, timeout=60)
    assert (found.returncode, found.stdout) == (130, b"")
