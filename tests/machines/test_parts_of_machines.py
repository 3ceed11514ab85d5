"""What a fleet on machines is made of: what is sent along, who gets which nodes, the way to a relayed fork server."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import threading
from pathlib import Path

import pytest

from netdfl.core.control import EVALUATOR, AskClock, ClockReading, FilePart, Hello, Report
from netdfl.core.errors import InputError, MachineError
from netdfl.host.apart import ASKS, ClockOffset, FileUpload
from netdfl.host.facts import address_in, interfaces
from netdfl.host.living import record_name
from netdfl.host.measuring import MeasurementServer, measured
from netdfl.host.plan import pack, unpack
from netdfl.scenario.load import load
from netdfl.scenario.model.world import Site
from netdfl.supervisor.mirror import mirror
from netdfl.worlds.machines import world
from netdfl.worlds.machines.machine import Offer, shares_of
from netdfl.worlds.machines.network import ClockFirstListener
from netdfl.worlds.machines.slurm import script
from netdfl.worlds.machines.world import packed


def _scenario(folder: Path) -> Path:
    (folder / "cellular.trace").write_text("2\n4\n6\n", encoding="utf-8")
    (folder / "mine.py").write_text("WORD = 'of my own'\n", encoding="utf-8")
    file = folder / "scenario.yaml"
    document = {
        "schema": "netdfl/1",
        "name": "sent",
        "nodes": 3,
        "rounds": 2,
        "task": {"kind": "consensus", "dim": 2},
        "algorithm": "dpsgd",
        "topology": "ring",
        "links": {"default": {"rate": {"kind": "mahimahi", "file": "cellular.trace"}}},
    }
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


def test_scenario_modules_and_named_files_are_sent_along(tmp_path: Path) -> None:
    (here := tmp_path / "here").mkdir()
    (there := tmp_path / "there").mkdir()
    scenario = load(_scenario(here))
    unpack(pack(scenario), there)
    for file in here.iterdir():
        file.unlink()
    assert str(there / "files" / "0-cellular.trace") in load(there / "scenario.yaml").model_dump_json()
    assert (there / "mine.py").read_text(encoding="utf-8") == "WORD = 'of my own'\n"
    (trace,) = (there / "files").iterdir()
    assert trace.read_text(encoding="utf-8").startswith("2\n4")


def test_two_named_files_of_which_one_path_begins_with_the_other_stay_apart(tmp_path: Path) -> None:
    trace = {"kind": "mahimahi", "file": "a.trace"}
    links = {"default": {"rate": trace}, "0->1": {"rate": {**trace, "file": "a.trace.old"}}}
    for name, text in (("a.trace", "2\n4\n"), ("a.trace.old", "3\n6\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    file = _scenario(tmp_path)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"links": links}), encoding="utf-8")
    unpack(pack(load(file)), there := tmp_path / "there")
    sent = {place: Path(rules.written()["rate"].file) for place, rules in load(there / "scenario.yaml").links.items()}
    assert {place: path.read_text() for place, path in sent.items()} == {"default": "2\n4\n", "0->1": "3\n6\n"}


def test_too_much_to_send_is_refused_and_the_largest_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = load(_scenario(tmp_path))
    assert packed(scenario)
    (tmp_path / "mine.py").write_text("#" * 5000, encoding="utf-8")
    monkeypatch.setattr(world, "MOST_BYTES", 4000)
    with pytest.raises(InputError, match=r"most of it mine\.py"):
        packed(scenario)


@pytest.mark.parametrize(
    ("machines", "nodes", "shares"),
    [(3, 10, [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]), (2, 4, [[0, 1], [2, 3]]), (4, 2, [[0], [1]]), (1, 3, [[0, 1, 2]])],
)
def test_nodes_are_shared_out_in_runs(machines: int, nodes: int, shares: list[list[int]]) -> None:
    found = shares_of({f"m{i}": Offer(f"10.0.0.{i}") for i in range(machines)}, nodes)
    assert found == {f"m{i}": share for i, share in enumerate(shares)}


def test_without_a_machine_there_is_nothing_to_share() -> None:
    with pytest.raises(MachineError, match="no machine"):
        shares_of({}, 3)


OFFERS = {"a": Offer("10.0.0.1", ("eu",)), "b": Offer("10.0.0.2", ("eu",)), "c": Offer("10.0.0.3", ("us",))}


@pytest.mark.parametrize(
    ("sites", "shares"),
    [
        ([([0, 1, 2], "eu")], {"a": [0, 1], "b": [2], "c": [3, 4]}),
        ([([4], "c")], {"a": [0, 1], "b": [2, 3], "c": [4]}),
        ([([0], "10.0.0.1"), ([1], "b"), ([2], "us")], {"a": [0, 3], "b": [1, 4], "c": [2]}),
    ],
)
def test_nodes_of_a_site_are_on_its_machines(sites: list[tuple[list[int], str]], shares: dict[str, list[int]]) -> None:
    assert shares_of(OFFERS, 5, [Site(nodes=nodes, machines=which) for nodes, which in sites]) == shares


def test_a_site_that_no_machine_has_is_named_with_those_that_there_are() -> None:
    with pytest.raises(MachineError, match=r"no machine is, or has, 'asia'; there are a: 10\.0\.0\.1, eu; b"):
        shares_of(OFFERS, 5, [Site(nodes=[0], machines="asia")])


def test_the_network_is_measured_from_one_who_serves(capsys: pytest.CaptureFixture[str]) -> None:
    with MeasurementServer("127.0.0.1", "a" * 32) as served:
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        here = {"here": ("127.0.0.1", served.port)}
        trip = measured("round_trip_s", here, "a" * 32)["here"]
        rate = measured("rate_bps", here, "a" * 32)["here"]
        wrong = measured("round_trip_s", here, "b" * 32)["here"]
        served.shutdown()
        thread.join()
    assert 0 < trip < 1
    assert rate > 0
    assert isinstance(wrong, str)
    assert isinstance(measured("round_trip_s", here, "a" * 32)["here"], str)


def test_an_address_is_found_by_its_interface_or_network() -> None:
    assert address_in("lo") == address_in("127.0.0.0/8") == "127.0.0.1"
    assert address_in("203.0.113.0/24") == address_in("no such") == ""
    if "::1" in interfaces()["lo"]:
        assert address_in("::/64") == "::1"


class Supervised:
    """A control stream, and a supervisor at its end that answers in order."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.shipping, self.parts = directory, FileUpload(directory / "there", 3, self), 0

    def report(self, report: Report) -> None:
        if isinstance(report, FilePart):
            mirror(self.directory / "here", 3, report)
            self.parts += 1
        elif isinstance(report, AskClock):
            asyncio.get_running_loop().call_soon(self.shipping.told, ClockReading(report.number, 0))

    async def flushed(self) -> None:
        await asyncio.sleep(0)


async def test_a_checkpoint_has_arrived_when_the_node_goes_on(tmp_path: Path) -> None:
    supervised = Supervised(tmp_path)
    for name in ("here", "there/checkpoints"):
        (tmp_path / name).mkdir(parents=True)
    saved = tmp_path / "there" / "checkpoints" / "003.safetensors"
    for content in (bytes(600_000), b"the next round's"):
        saved.write_bytes(content)
        await supervised.shipping.surely(saved)
        assert (tmp_path / "here" / "checkpoints" / "003.safetensors").read_bytes() == content
    assert supervised.parts == 3 + 1 + 2


def test_a_node_attends_when_it_knows_the_clock() -> None:
    """The supervisor's last answer is on its way before it hears of the node."""
    told: list[tuple[int, Report]] = []
    reports: list[Report] = []

    class Told:
        exited = came_back = refused = broke = None

        def report(self, node: int, report: Report) -> None:
            told.append((node, report))

    hello = Hello(node=3, role="client", pid=1, address="", scenario_hash="", protocol_version=1, epoch=0)
    first, clock = ClockFirstListener(Told()), ClockOffset(reports.append, lambda: 0)  # type: ignore[arg-type]
    first.report(EVALUATOR, hello)
    first.report(3, hello)
    clock.begin()
    while not clock.known:
        asked = reports.pop()
        assert isinstance(asked, AskClock)
        first.report(3, asked)
        clock.told(ClockReading(asked.number, 1))
    assert told == [(EVALUATOR, hello), *((3, AskClock(number)) for number in range(ASKS)), (3, hello)]


def test_later_lives_elsewhere_have_a_record_of_their_own() -> None:
    assert record_name(3, 0, False) == record_name(3, 2, True) == "003"
    assert record_name(3, 2, False) == "003-2"


def test_a_script_goes_on_with_a_run_that_was_queued_again_only_where_it_can(tmp_path: Path) -> None:
    file = tmp_path / "my scenario.yaml"
    assert "--no-requeue" in script(file, "fleet", 3)
    assert "--resume" not in script(file, "fleet", 3)
    again = script(file, "fleet", 3, resumable=True)
    assert "#SBATCH --requeue" in again
    for restarts, told in ((0, "run "), (1, "run --resume ")):
        play = again.replace("exec ", "echo ").replace(shlex.quote(str(Path("runs").resolve())), str(tmp_path))
        (tmp_path / "fleet-7").mkdir(exist_ok=True)
        (tmp_path / "fleet-7" / "scenario.yaml").touch()
        environment = {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": str(restarts), "PATH": "/usr/bin:/bin"}
        said = subprocess.run(["sh", "-c", play], env=environment, capture_output=True, text=True, check=True).stdout
        assert f"-m netdfl {told}{tmp_path}" in said.splitlines()[0]
