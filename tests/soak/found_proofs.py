"""Write one counterexample of each kind in the table of proofs as a scenario: `python -m tests.soak.found_proofs`.

A kind is what breaks, by which faults, under which delivery. The files lie in `scenarios/found/proofs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from netdfl.prove.bound import read_bound
from netdfl.prove.counterexample import write_counterexample
from netdfl.prove.proof import ScenarioProof
from netdfl.prove.properties import choose_properties
from netdfl.scenario.load import load
from tests.soak.proofs import Cell, read
from tests.soak.tally import ROOT

FOLDER = ROOT / "scenarios/found/proofs"
SCHEMA = "# yaml-language-server: $schema=../../../netdfl/scenario/netdfl-1.schema.json\n"
NAMES = {"stall": ("stall", "finish"), "weight": ("weight",), "counted": ("counted",)}


class Counterexample(NamedTuple):
    """A counterexample of the table.

    Attributes:
        cell: the method and what is around it.
        bound: the most faults of each kind.
        asked: the key of the properties that the proof was about.
        told: the answer, with the faults.
    """

    cell: Cell
    bound: str
    asked: str
    told: Mapping[str, Any]

    @property
    def faults(self) -> list[str]:
        """The kinds of its faults, sorted."""
        return sorted(_fault(event) for event in self.told["events"])

    @property
    def kind(self) -> str:
        """What breaks, by which faults, under which delivery; also the name of its file."""
        words = [str(self.told["word"]).replace(" ", "_"), *self.faults, self.cell.delivery]
        return "_".join(words)


def _fault(event: Mapping[str, Any]) -> str:
    if "crash" not in event:
        return "loss"
    if "restart_after" not in event:
        return "crash"
    return "return_without_state" if event.get("state") == "lost" else "return"


def counterexamples() -> list[Counterexample]:
    """All counterexamples of the table."""
    return [
        Counterexample(Cell(*row["cell"][:5]), bound, asked, told)
        for row in read()
        for bound, answers in row.get("bounds", {}).items()
        for asked, told in answers.items()
        if "events" in told
    ]


def representatives() -> dict[str, Counterexample]:
    """The first counterexample of each kind."""
    first: dict[str, Counterexample] = {}
    for each in counterexamples():
        first.setdefault(each.kind, each)
    return first


def text_of(found: Counterexample) -> str:
    """The scenario of a counterexample, proven anew."""
    scenario = load(found.cell.scenario())
    answer = ScenarioProof(scenario, read_bound(found.bound), choose_properties(scenario, NAMES[found.asked])).run()
    return SCHEMA + write_counterexample(answer).text


def main(folder: Path = FOLDER) -> None:
    """Write the files; those of kinds that are no longer in the table are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    kinds = representatives()
    for file in folder.glob("*.yaml"):
        if file.stem not in kinds:
            file.unlink()
    for kind, found in kinds.items():
        (folder / f"{kind}.yaml").write_text(text_of(found), encoding="utf-8")
        print(kind, found.cell.name, flush=True)


if __name__ == "__main__":
    main()
