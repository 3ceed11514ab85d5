"""The counterexamples in the table of proofs still break what it says; of very many a sample is played."""

from __future__ import annotations

import random
from typing import Any

from netdfl.prove.bound import read_bound
from netdfl.prove.proof import ScenarioProof
from netdfl.prove.properties import broken_by, choose_properties
from netdfl.scenario.load import load
from tests.soak.proofs import PAGE, WORDS, Cell, read, table

NAMES = {"stall": ("stall", "finish"), "weight": ("weight",), "counted": ("counted",)}
SAMPLE = 40


def counterexamples() -> list[tuple[Cell, str, dict[str, Any]]]:
    """All of the table: the cell, what was asked, and the answer."""
    return [
        (Cell(*row["cell"][:5]), asked, told)
        for row in read()
        for answers in row.get("bounds", {}).values()
        for asked, told in answers.items()
        if "events" in told
    ]


def test_a_sample_of_the_counterexamples_breaks_what_the_table_says() -> None:
    found = counterexamples()
    assert len(found) >= SAMPLE
    for cell, asked, told in random.Random(1).sample(found, SAMPLE):
        scenario = load(cell.scenario())
        properties = choose_properties(scenario, NAMES[asked])
        proof = ScenarioProof(scenario, read_bound("loss: 0"), properties)
        broken = broken_by(proof.player.play(told["events"]), properties)
        assert broken is not None, (cell, asked, told)
        assert told["word"] == ("breaks" if broken[0] == "no error" else WORDS[asked])
        assert len(told["events"]) == told["faults"]


def test_the_page_is_that_of_its_rows() -> None:
    assert PAGE.read_text() == table(read())
