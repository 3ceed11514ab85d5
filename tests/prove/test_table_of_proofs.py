"""The counterexamples in the table of proofs still break what it says; of very many a sample is played."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

import netdfl
from netdfl.core.types import Json
from netdfl.prove.bound import read_bound
from netdfl.prove.proof import ScenarioProof
from netdfl.prove.properties import broken_by, choose_properties
from netdfl.scenario.load import load
from netdfl.scenario.model.schema import Scenario
from tests.soak.found_proofs import FOLDER, NAMES, counterexamples, representatives
from tests.soak.proofs import WORDS, read
from tests.soak.proofs_page import PAGE, table

FILES = sorted(FOLDER.glob("*.yaml"))
SAMPLED = (
    *("loses_weight_crash_acknowledged", "loses_weight_loss_plain", "stalls_loss_return_acknowledged"),
    *("stalls_loss_plain", "stalls_return_without_state_plain"),
)
"""One of each kind of fault, and of each delivery."""


@pytest.mark.parametrize("size", [15, pytest.param(40, marks=pytest.mark.soak)])
def test_a_sample_of_the_counterexamples_breaks_what_the_table_says(size: int) -> None:
    for each in random.Random(1).sample(counterexamples(), size):
        assert each.told["word"] == breaks(load(each.cell.scenario()), each.told["events"], each.asked), each
        assert len(each.told["events"]) == each.told["faults"]


def breaks(scenario: Scenario, events: Sequence[Json], asked: str) -> str | None:
    """What the table says of a scenario with these events; None: nothing breaks."""
    properties = choose_properties(scenario, NAMES[asked])
    proof = ScenarioProof(scenario, read_bound("loss: 0"), properties)
    broken = broken_by(proof.player.play(events), properties)
    return None if broken is None else "breaks" if broken[0] == "no error" else WORDS[asked]


def test_one_of_each_kind_is_a_scenario() -> None:
    assert {file.stem for file in FILES} == set(representatives())


@pytest.mark.parametrize(
    "file",
    [pytest.param(file, id=file.stem, marks=[] if file.stem in SAMPLED else [pytest.mark.soak]) for file in FILES],
)
def test_it_breaks_what_its_name_says_and_repeats_itself(file: Path, tmp_path: Path) -> None:
    run = netdfl.run(file, out=tmp_path / "run", page=False)
    assert f"# Event log: {run.result['event_log_hash']}\n" in file.read_text(encoding="utf-8")
    keys = yaml.safe_load(file.read_text(encoding="utf-8"))
    events = keys.pop("events")
    asked = next(key for key, word in WORDS.items() if file.stem.startswith(word.replace(" ", "_")))
    assert breaks(load(keys), events, asked) == WORDS[asked]


def test_the_page_is_that_of_its_rows() -> None:
    assert PAGE.read_text() == table(read())


def test_no_loss_of_any_kind_of_message_stalls_who_waits_for_all_where_messages_are_acknowledged() -> None:
    """Whatever a wait waits for is sent again: data, notices, requests and replies."""
    of_all = [row for row in read() if row["cell"][2:4] == ["acknowledged", "all"] and "bounds" in row]
    assert len(of_all) > 50
    assert not [row["cell"] for row in of_all if row["bounds"]["loss: 2"]["stall"]["word"] != "survives"]
