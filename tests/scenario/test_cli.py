"""The commands that look at a scenario: what they print, and how they fail."""

from __future__ import annotations

import json
import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
from typer.main import get_command

from netdfl import cli
from netdfl.cli.commands import make_app
from netdfl.scenario.explain.keys import lists
from netdfl.scenario.json_schema import FILE, text
from tests.warm import warm_python

ROOT = Path(__file__).parents[2]
QUICKSTART = str(ROOT / "scenarios" / "quickstart.yaml")


def netdfl(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", ["netdfl", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


def test_validate_says_that_a_scenario_is_valid_and_what_it_dropped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["validate", QUICKSTART, "--set", "algorithm.name=osgp", "--set", "topology.kind=random_push"]
    assert netdfl(*arguments, monkeypatch=monkeypatch) == 0
    out, err = capsys.readouterr()
    assert out == f"{QUICKSTART}: quickstart is valid\n"
    assert err.splitlines() == ["note: topology.neighbors is dropped: random_push has no such key"]


def test_mistakes_are_lines_on_stderr_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert netdfl("validate", QUICKSTART, "--set", "rounds=0", "--on", "moon", monkeypatch=monkeypatch) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.partition(": ")[0] for line in err.splitlines()] == ["--on moon", "--set rounds=0"]


def test_several_datasets_are_fetched_by_one_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert netdfl("data", "get", "digits", "digits", "dgits", monkeypatch=monkeypatch) == 2
    out, err = capsys.readouterr()
    first, second = out.splitlines()
    assert first == second
    assert "no dataset is called 'dgits'" in err


@pytest.mark.parametrize("arguments", [["validate", "none.yaml"], ["list", "algorthms"], ["explain", "none.yaml"]])
def test_bad_arguments_are_one_line(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert netdfl(*arguments, monkeypatch=monkeypatch) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_internal_error_is_one_line_and_exit_4(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NETDFL_TRACEBACK", raising=False)
    no_own_line = {}.__getitem__  # a lambda here would be the user's code
    monkeypatch.setattr("netdfl.cli.scenarios.load_scenario", no_own_line)
    assert netdfl("validate", QUICKSTART, monkeypatch=monkeypatch) == 4
    assert "internal error: TypeError: dict.__getitem__() takes exactly one argument" in capsys.readouterr().err


def test_the_list_as_json_has_what_an_algorithm_needs_and_its_defaults(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert netdfl("list", "algorithms", "--format", "json", monkeypatch=monkeypatch) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["osgp"]["family"] == "gossip"
    assert rows["osgp"]["needs"] == ["column", "doubly"]
    assert rows["fedavg"]["needs"] == ["server"]
    assert rows["dfedavg"]["parameters"]["local_epochs"] == 5


def test_the_list_of_algorithms_says_of_each_its_equations_what_it_keeps_and_sends_and_its_source(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert netdfl("list", "algorithms", "--format", "json", monkeypatch=monkeypatch) == 0
    for row in json.loads(capsys.readouterr().out):
        assert row["about"].startswith(row["help"] + "\n")
        said = " ".join(row["about"].split())
        for needed in (r"<-|\+ = |\) = ", r"Sends ", r"\bkeeps? ", r"Source: \w"):
            assert re.search(needed, said), f"{row['name']}: nothing like {needed!r} in its docstring"


def test_every_list_can_be_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert netdfl("list", monkeypatch=monkeypatch) == 0
    shown, command = capsys.readouterr().out.split(), get_command(make_app())  # made once: that takes longest
    for what in lists():
        assert what in shown
        for form in ([], ["--format", "json"]):
            command.main(["list", what, *form], standalone_mode=False)
            assert capsys.readouterr().out.strip(), what


def test_explain_counts_what_the_graph_and_the_wire_say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert netdfl("explain", QUICKSTART, "--set", "topology=ring", "--format", "json", monkeypatch=monkeypatch) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["graph"]["edges"], found["graph"]["links"]) == (16, 32)
    assert found["weights"]["stochastic"] == "doubly"
    assert found["weights"]["psi"] == pytest.approx(0.9493, abs=1e-4)
    assert found["task"]["parameters"] == 64 * 64 + 64 + 64 * 10 + 10
    assert 0 <= found["traffic"]["message_bytes"] - 4 * found["task"]["parameters"] < 200
    assert found["traffic"]["bytes_per_round"] == 32 * found["traffic"]["message_bytes"]
    assert sum(map(sum, found["data"]["counts"])) == 1438
    assert (found["wait"]["for"], found["wait"]["deadline"]) == ("all", "auto")
    assert found["delivery"] == {"kind": "plain"}
    wait = ["--set", "wait={for: {quorum: 2}, deadline: 3s}", "--set", "delivery={kind: acknowledged, timeout: 200ms}"]
    assert netdfl("explain", QUICKSTART, *wait, monkeypatch=monkeypatch) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "for a quorum of 2, deadline 3s" in shown
    assert "acknowledged, timeout 200ms, attempts 20" in shown


def test_explain_lists_the_compiled_events(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    events = "events=[{at: 3s, for: 2s, crash: 4}, {at: 1s, link: 0->1, loss: 10%}]"
    assert netdfl("explain", QUICKSTART, "--set", events, "--format", "json", monkeypatch=monkeypatch) == 0
    found = json.loads(capsys.readouterr().out)["events"]
    assert [(event["at_ns"], event["action"]) for event in found] == [
        (1_000_000_000, "set"),
        (3_000_000_000, "crash"),
        (5_000_000_000, "restart"),
    ]


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [("sgp", "push-sum"), ("dpsgd", "gossip"), ("overlap_sgp", "overlap"), ("ad_psgd", "bilateral")],
)
def test_explain_calls_a_method_with_weights_push_sum(
    algorithm: str, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = ["--set", f"algorithm={algorithm}", "--set", "topology=ring", "--set", "nodes=4"]
    assert netdfl("explain", QUICKSTART, *changed, monkeypatch=monkeypatch) == 0
    assert f"{algorithm} ({kind})" in capsys.readouterr().out


def test_the_json_schema_is_up_to_date() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), "run `python -m netdfl.scenario.json_schema`"


def test_the_json_schema_knows_every_key_and_part() -> None:
    schema = json.loads(FILE.read_text(encoding="utf-8"))
    assert schema["additionalProperties"] is False
    assert {"task", "links", "events", "wait"} <= set(schema["properties"])
    names = [option["enum"] for option in schema["properties"]["algorithm"]["anyOf"] if "enum" in option]
    assert "dfedavg" in names[0]


def test_the_command_line_is_a_module_too() -> None:
    done = subprocess.run([warm_python(), "-m", "netdfl", "list", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "algorithms" in done.stdout


def test_explain_says_what_the_rules_of_links_come_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bursty = "{loss: {model: gilbert_elliott, p: 0.02, r: 0.3}}"
    links = f"links={{default: {bursty}, '0->1': {{state: down_drop}}, 2: {{uplink: none}}}}"
    events = "events=[{at: 1s, link: 0--1, loss: 10%}]"
    arguments = ["explain", QUICKSTART, "--set", "topology=ring", "--set", links, "--set", events]
    assert netdfl(*arguments, "--format", "json", monkeypatch=monkeypatch) == 0
    bursts, down, uplink, event = json.loads(capsys.readouterr().out)["links"]
    assert (bursts["of"], bursts["links"], bursts["rule"], bursts["event"]) == ("default", 32, "gilbert_elliott", None)
    assert bursts["figures"] == {"stationary_loss": pytest.approx(0.0625), "mean_burst": pytest.approx(1 / 0.3)}
    assert (down["key"], down["rule"], down["links"]) == ("state", "down_drop", 1)
    assert (uplink["key"], uplink["rule"], uplink["links"]) == ("uplink", "none", None)
    assert (event["of"], event["event"], event["links"]) == ("0--1", 0, 2)
    assert event["figures"]["stationary_loss"] == 0.1
    assert netdfl(*arguments, monkeypatch=monkeypatch) == 0
    assert "loses 6.25%" in capsys.readouterr().out


def test_the_version_is_the_installed_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert netdfl("--version", monkeypatch=monkeypatch) == 0
    assert capsys.readouterr().out == f"netdfl {metadata.version('netdfl')}\n"
