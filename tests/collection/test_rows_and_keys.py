"""What a row says of a run, and what is read of scenarios, each part of a text once."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.collection.keys import SHORT, differing, scenario_keys, short_keys, value_of
from netdfl.collection.listing import ListRequest, list_runs
from netdfl.collection.varied import varied
from netdfl.core.errors import ScenarioError
from netdfl.links.spec import SLOTS
from netdfl.scenario.loading.document import parse
from tests.collection.conftest import Plant


def test_the_newest_run_comes_first_by_its_name_or_by_when_its_scenario_was_written(plant: Plant, folder: Path) -> None:
    plant("old", at=0)
    plant("small/20250102T030405Z-3", at=-50_000_000)
    plant("new", at=60)
    rows = list_runs(folder, ListRequest()).rows
    assert [(row.place, row.started) for row in rows] == [
        ("small/20250102T030405Z-3", "2025-01-02 03:04:05"),
        ("new", "2023-11-14 22:14:20"),
        ("old", "2023-11-14 22:13:20"),
    ]


def test_keys_are_those_in_which_the_chosen_runs_differ(plant: Plant, folder: Path) -> None:
    plant("a", lines={"delay: 5ms": "delay: 8ms"})
    plant("b", lines={"rounds: 3": "rounds: 9"})
    plant("c", lines={"seed: 3": "seed: 4"})
    plant("d", lines={"deadline: auto": "deadline: none"})
    assert list_runs(folder, ListRequest()).keys == ["wait.deadline", "links.default.latency.delay"]
    assert list_runs(folder, ListRequest(filter="latency.delay = 5ms")).keys == ["wait.deadline"]
    assert differing([{"a": "1"}, {"a": "1", "b": "2"}, {"a": "3"}], but=["a"]) == ["b"]


def test_the_keys_with_the_most_values_come_first() -> None:
    rows = [{"a": "1", "b": str(place), "c": str(place // 2), "d.e": "5"} for place in range(4)]
    del rows[0]["d.e"]
    assert varied(rows) == (["b", "c", "d.e"], [])
    assert varied(rows, but=["b"]).telling == ["c", "d.e"]


def test_a_key_that_comes_with_the_value_of_another_is_no_news() -> None:
    sgd = {"x.optimizer.name": "sgd", "x.optimizer.momentum": "0"}
    adam = {"x.optimizer.name": "adam", "x.optimizer.eps": "1e-8"}
    found = varied([sgd, {**adam, "links.default.loss.model": "bernoulli", "links.default.loss.probability": "0.1"}])
    assert found.telling == ["x.optimizer.name", "links.default.loss.probability"]
    assert set(found.implied) == {"x.optimizer.momentum", "x.optimizer.eps", "links.default.loss.model"}
    some = varied([sgd, {**sgd, "x.optimizer.eps": "1e-8"}, adam])
    assert some.telling == ["x.optimizer.name", "x.optimizer.eps"]  # not all of one name have it
    assert varied([{"compression": "none"}, {"compression.kind": "qsgd", "compression.bits": "8"}]) == (
        ["compression.kind"],
        ["compression", "compression.bits"],
    )


def test_defaults_of_algorithms_are_no_news_unless_one_was_changed() -> None:
    gossip = {"algorithm.name": "dpsgd", "algorithm.momentum": "0.0", "algorithm.optimizer.name": "sgd"}
    momentum = {"algorithm.name": "dfedavgm", "algorithm.momentum": "0.9"}
    own = {"algorithm.name": "nowhere.module:own", "algorithm.rho": "0.1"}
    defaults = ["algorithm.momentum", "algorithm.optimizer.name", "algorithm.rho"]
    assert varied([gossip, momentum, own]) == (["algorithm.name"], defaults)
    assert varied([gossip, {**momentum, "algorithm.momentum": "0.5"}], ["algorithm.name"]).telling == [
        "algorithm.momentum"
    ]
    assert varied([own, {**own, "algorithm.rho": "0.2"}]).telling == ["algorithm.rho"]  # whose default nobody knows


def test_a_rule_of_links_is_found_by_the_word_that_a_scenario_writes() -> None:
    for name, slot in SLOTS.items():
        assert name not in SHORT or tuple(SHORT[name]) == (slot.short, slot.key)
    rows = [{"links.default.loss.probability": "0.1", "links.default.loss.model": "bernoulli"}, {"compression": "none"}]
    rows += [{"compression.kind": "top_k"}, {"links.default.loss.model": "trace"}]
    assert [value_of(row, "links.default.loss") for row in rows] == ["0.1", None, None, "trace"]
    assert [value_of(row, "compression") for row in rows] == [None, "none", "top_k", None]
    assert short_keys(["links.default.loss.model", "compression.kind", "a.kind"]) == {
        "links.default.loss",
        "compression",
    }


def test_a_run_that_was_killed_is_known_by_its_scenario(plant: Plant, folder: Path) -> None:
    (plant("killed") / "result.json").unlink()
    (row,) = list_runs(folder, ListRequest(filter="state = ended seed = 3 algorithm = dpsgd")).rows
    told = {"name": "small", "world": "simulated", "algorithm": "dpsgd", "nodes": 4, "rounds": 3, "seed": 3}
    assert (row.verdict, dict(row.facts)) == ("no verdict", told)


def test_a_damaged_run_is_listed_with_the_reason(plant: Plant, folder: Path) -> None:
    plant("whole")
    (plant("cut") / "result.json").write_text("{")
    (plant("no yaml") / "scenario.yaml").write_text("a: [1")
    rows = {row.place: row for row in list_runs(folder, ListRequest()).rows}
    assert rows["whole"].wrong == ""
    assert (rows["cut"].state, "result.json is damaged" in rows["cut"].wrong) == ("damaged", True)
    assert (rows["no yaml"].verdict, "not valid YAML" in rows["no yaml"].wrong) == ("done", True)


def test_the_trash_and_hidden_folders_are_not_looked_into(plant: Plant, folder: Path) -> None:
    plant("a")
    (folder / ".trash").mkdir()
    plant(".trash/b")
    assert [row.place for row in list_runs(folder, ListRequest()).rows] == ["a"]


WHOLE = [
    "name: x\nseed: 3\n",
    "links:\n  default: {loss: 5%}\n  0->1:\n    loss: 0\n",
    "events:\n- {at: 1s, crash: 3}\n- at: 2s\n  heal: true\nnodes: 3\n",
    "base: &b {lr: 1}\nother: *b\n",
    "'quoted key': 1\nname: y\n",
    "# only\n\n# comments\n",
    "text: |\n  two\n\n  lines\nname: z\n",
    "{name: flow, seed: 1}\n",
    "---\nname: marked\n",
    "name: null\n",
    "- a\n- b\n",
]


@pytest.mark.parametrize("text", WHOLE)
def test_parts_of_a_scenario_mean_what_the_whole_means(text: str) -> None:
    def flat(value: object, way: str) -> dict[str, str]:
        if isinstance(value, dict):
            inner = [flat(each, f"{way}.{key}" if way else str(key)) for key, each in value.items()]
        elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
            inner = [flat(each, f"{way}[{place}]") for place, each in enumerate(value)]
        else:
            return {way: str(value)} if value is not None or way else {}
        return {key: each for part in inner for key, each in part.items()}

    assert scenario_keys(text) == flat(parse(text, "x").data, "")


def test_what_is_no_yaml_is_refused_with_its_place() -> None:
    with pytest.raises(ScenarioError, match=r"not valid YAML"):
        scenario_keys("name: x\nlinks: {a: [}\n")
