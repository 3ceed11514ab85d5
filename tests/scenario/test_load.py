"""Reading scenarios: YAML 1.2, units, short forms, defaults, own parts, and writing them out again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdfl.core.errors import ScenarioError
from netdfl.scenario.load import load, loads
from netdfl.scenario.loading.identity import scenario_hash
from netdfl.scenario.loading.resolved import to_plain, to_yaml
from netdfl.scenario.model.schema import Scenario

ROOT = Path(__file__).parents[2]
SHIPPED = [path for path in sorted((ROOT / "scenarios").rglob("*.yaml")) if path.parent.name != "studies"]
BASE = "schema: netdfl/1\nname: test\nnodes: 8\nrounds: 10\nalgorithm: dfedavg\ntopology: ring\n"


def mistakes(text: str, *sets: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        loads(text, sets, file="test.yaml")
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_shipped_scenarios_are_valid_and_name_their_schema(file: Path) -> None:
    scenario = load(file)
    beside = [notice for notice in scenario.notices if not notice.startswith("delivery: auto is acknowledged here")]
    if "found" not in file.parts:  # those hold what was searched, default by default
        assert beside == []
        assert len(scenario.notices) == (file.stem == "under_loss")
    first = file.read_text().splitlines()[0]
    schema = first.removeprefix("# yaml-language-server: $schema=")
    assert (file.parent / schema).resolve() == ROOT / "netdfl" / "scenario" / "netdfl-1.schema.json"


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_a_scenario_written_out_loads_to_the_same_scenario(file: Path) -> None:
    scenario = load(file)
    again = loads(to_yaml(scenario), directory=file.parent)
    assert to_plain(again) == to_plain(scenario)
    assert scenario_hash(again) == scenario_hash(scenario)


def test_a_graph_given_by_its_edges_is_written_out_without_a_file() -> None:
    """Nodes of real worlds load what was written out."""
    scenario = loads(
        BASE.replace("ring", "{kind: edge_list, edges: [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 6], [6, 7]]}")
    )
    assert to_plain(loads(to_yaml(scenario))) == to_plain(scenario)


def test_on_is_a_word_and_1e_3_is_a_number() -> None:
    scenario = loads(BASE.replace("algorithm: dfedavg", "algorithm: {name: dfedavg, lr: 1e-3}") + "groups: {on: 1}\n")
    assert scenario.algorithm.params["lr"] == 1e-3
    assert scenario.groups == {"on": [1]}


def test_units_are_read_to_base_units() -> None:
    links = "links: {default: {loss: 5%, latency: 20ms, rate: 10Mbit}}\nwait: {deadline: 1.5s}\n"
    scenario = loads(BASE + links)
    rules = scenario.links["default"].written()
    assert rules["loss"].params == {"probability": 0.05}
    assert rules["latency"].params == {"delay": 20_000_000}
    assert rules["rate"].params["rate"] == 1e7
    assert scenario.wait.deadline == 1_500_000_000


@given(st.integers(0, 10**6), st.sampled_from(["ms", "us", "s"]))
def test_spelling_does_not_change_the_hash(amount: int, unit: str) -> None:
    in_ns = amount * {"us": 10**3, "ms": 10**6, "s": 10**9}[unit]
    one = loads(BASE + f"links: {{default: {{latency: {amount}{unit}}}}}\n")
    other = loads(BASE + f"links: {{default: {{latency: {{dist: constant, delay: {in_ns}ns}}}}}}\n")
    assert scenario_hash(one) == scenario_hash(other)


@pytest.mark.parametrize("change", ["seed=1", "nodes=9", "algorithm.lr=0.2", "topology=full", "wait.for=any"])
def test_any_change_of_meaning_changes_the_hash(change: str) -> None:
    assert scenario_hash(loads(BASE)) != scenario_hash(loads(BASE, [change]))


@pytest.mark.parametrize(("rounds", "every"), [(1, 1), (50, 1), (51, 2), (1000, 20)])
def test_there_are_about_fifty_evaluations(rounds: int, every: int) -> None:
    assert loads(BASE, [f"rounds={rounds}"]).evaluation.every == every
    assert loads(BASE, [f"rounds={rounds}", "evaluation.every=7"]).evaluation.every == 7


def test_a_server_is_one_more_node() -> None:
    scenario = loads(BASE, ["algorithm.name=fedavg", "topology.kind=star", "groups.server=8"])
    assert scenario.has_server
    assert (scenario.nodes, scenario.num_nodes) == (8, 9)
    assert "node 9 does not exist" in mistakes(BASE, "algorithm.name=fedavg", "topology.kind=star", "groups.a=9")[0]


def test_what_a_wait_may_be() -> None:
    assert loads(BASE, ["wait.for={quorum: 2}"]).wait.need == 2
    assert loads(BASE, ["wait.deadline=none"]).wait.deadline is None
    assert loads(BASE).wait.deadline == "auto"


def test_an_own_part_is_found_beside_the_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_graphs.py").write_text(
        "from netdfl.topology.static import ring\n"
        "def doubled(num_nodes, streams, /, *, strength: float = 1.0):\n"
        '    """My own graph."""\n'
        "    return ring(num_nodes, streams)\n"
        "def untyped(num_nodes, streams, /, *, strength=1.0):\n"
        "    return ring(num_nodes, streams)\n"
    )
    file = tmp_path / "own.yaml"
    file.write_text(BASE.replace("ring", "{kind: my_graphs:doubled, strength: 2.5}"))
    assert load(file).topology.params == {"strength": 2.5}
    file.write_text(BASE.replace("ring", "{kind: my_graphs:doubled, strenght: 2.5}"))
    with pytest.raises(ScenarioError, match=r"own\.yaml:6:37: unknown key 'strenght'.*did you mean 'strength'"):
        load(file)
    file.write_text(BASE.replace("ring", "my_graphs:untyped"))
    with pytest.raises(ScenarioError, match=r"'strength' of my_graphs\.untyped has no type"):
        load(file)


def test_the_number_of_a_node_is_a_key_with_or_without_quotes() -> None:
    bare, quoted = (loads(BASE + f"links: {{{key}: {{uplink: 5Mbit}}}}\n") for key in ("0", '"0"'))
    assert bare == quoted
    assert list(bare.links) == ["0"]
    (said,) = mistakes(BASE + 'links:\n  0: {uplink: 5Mbit}\n  "0": {uplink: 6Mbit}\n')
    assert "the key '0' is repeated" in said


def test_a_link_that_follows_a_trace_is_not_shared_fairly(tmp_path: Path) -> None:
    (tmp_path / "a.trace").write_text("1\n")
    trace = f"{{kind: mahimahi, file: {tmp_path / 'a.trace'}, sharing: fair}}"
    (said,) = mistakes(BASE + f"links:\n  default:\n    uplink: {trace}\n")
    assert ":3:" in said.replace(f":{BASE.count(chr(10)) + 3}:", ":3:")
    assert "sharing: fair needs a plain rate" in said


def test_a_network_of_packets_says_that_it_serves_no_link_in_turn() -> None:
    links = "links:\n  default:\n    uplink: {rate: 1Mbit, sharing: fifo}\n"
    told = "sharing: fifo of default.uplink does nothing in namespaces, where TCP shares the link"
    assert told in loads(BASE + links, on="namespaces").notices
    assert not [notice for notice in loads(BASE + links).notices if "sharing" in notice]
    assert told not in loads(BASE + links.replace("fifo", "fair"), on="namespaces").notices


def test_a_key_that_would_repeat_an_alias_for_ever_is_refused() -> None:
    assert "alias inside what it stands for" in mistakes(BASE + "groups: &a {x: *a}\n")[0]


def test_aliases_that_multiply_are_refused_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdfl.scenario.loading.document.MOST_VALUES", 1000)
    levels = [f"x{level + 1}: &x{level + 1} [{', '.join([f'*x{level}'] * 9)}]" for level in range(9)]
    assert "more than 1,000 " in mistakes(BASE + "x0: &x0 [1]\n" + "\n".join(levels))[0]


@pytest.mark.parametrize("text", ["", "[1, 2]", "just words", "null"])
def test_a_scenario_is_a_mapping(text: str) -> None:
    assert "a scenario is a mapping" in mistakes(text)[0]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="can't be read"):
        load(tmp_path / "none.yaml")


@pytest.mark.soak  # test_layers.py has it, too
def test_loading_does_not_import_torch() -> None:
    code = "import sys; from netdfl.scenario.load import load; load(sys.argv[1]); assert 'torch' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "scenarios" / "quickstart.yaml")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_scenario_never_changes() -> None:
    scenario: Scenario = loads(BASE)
    with pytest.raises(ValueError, match="frozen"):
        scenario.seed = 3


@pytest.mark.parametrize(
    ("world", "seconds"),
    [
        ("processes", 2),
        ("namespaces", 20),
        ("{kind: containers}", 20),
        ("{kind: namespaces, loss_layer: message}", 2),
        ("{kind: simulated, loss_layer: packet}", 2),
    ],
)
def test_grpc_waits_longer_for_an_answer_where_packets_are_late(world: str, seconds: int) -> None:
    text = BASE + f"world: {world}\n"
    assert loads(text).transport.keepalive_timeout == seconds * 10**9
    assert to_plain(loads(text))["transport"]["keepalive_timeout"] == f"{seconds}s"
    assert loads(text + "transport: {keepalive_timeout: 7s}\n").transport.keepalive_timeout == 7 * 10**9
    assert loads(BASE, on="namespaces").transport.keepalive_timeout == 20 * 10**9


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["world={kind: simulated, stragglers: {nodes: [99]}}"], "node 99 does not exist"),
        (["links={default: {loss: {model: drop_list, messages: [{round: 10}]}}}"], "names round 10, and rounds are 0"),
        (
            ["events=[{at: 1s, link: 0->1, loss: {model: drop_list, messages: [{round: 3}, {round: 12}]}}]"],
            "names round 12, and rounds are 0 to 9",
        ),
        (["topology={kind: ring, selection: {kind: random_k, k: 3}}"], "no node has more than 2"),
    ],
)
def test_what_would_never_have_an_effect_is_refused(sets: list[str], said: str) -> None:
    assert any(said in mistake for mistake in mistakes(BASE, *sets))


@pytest.mark.parametrize(
    "set_",
    [
        "world={kind: simulated, stragglers: {nodes: [7]}}",
        "links={default: {loss: {model: drop_list, messages: [{round: 9}]}}}",
        "topology={kind: ring, selection: {kind: random_k, k: 2}}",
        "topology={kind: random_sym, neighbors: 3, selection: {kind: random_k, k: 4}}",
    ],
)
def test_what_may_have_an_effect_is_not_refused(set_: str) -> None:
    loads(BASE, [set_])


def test_bounds_on_bytes_and_durations_take_units_and_mean_what_plain_numbers_mean() -> None:
    said, plain = (
        loads(f"{BASE}expect: {{bytes_sent: {{at_most: {size}}}, duration_s: {{at_most: {time}}}}}\n")
        for size, time in (("9kB", "1500ms"), (9000, 1.5))
    )
    assert said.expect.entries() == plain.expect.entries() == loads(to_yaml(said)).expect.entries()
    assert scenario_hash(said) == scenario_hash(plain)
