"""netdfl's own worlds as the suite of worlds knows them, and the table of what each can do.

`python -m tests.own_worlds` writes the table into ARCHITECTURE.md, `--check` says whether it is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from netdfl.core.files import write_or_check
from netdfl.testing import world_ends as ends
from netdfl.testing import world_faults as faults
from netdfl.testing.leftovers import containers, network
from netdfl.testing.world_bench import Keys, Options
from netdfl.testing.worlds import WORLD_CHECKS, Check, TestedWorld, WorldDifference

_LATE: Keys = {"fidelity": {"relative": 100, "slack": "100s"}}
"""No check is about how well links keep their times."""
_BY_MESSAGE: Keys = {"loss_layer": "message"}

OWN_WORLDS = (
    TestedWorld(
        "simulated",
        Options(world={"kind": "simulated", "compute": "10ms"}, fleets_at_once=False, rounds_of_seconds=120),
        {
            ends.same_numbers_as_simulated: WorldDifference(
                "it is the measure of the others, and repeats itself to the hash of its event log", ends.repeats_itself
            ),
            ends.two_at_once: WorldDifference(
                "exact arithmetic is a setting of a whole process: two fleets run one after the other", ends.two_at_once
            ),
            faults.kill_of_a_node: WorldDifference("its nodes have no process of their own that somebody could kill"),
            ends.resume_of_a_killed_run: WorldDifference(
                "it plays the run again from its start, without training again, to the hash of a run left alone",
                ends.replay_of_a_killed_run,
            ),
        },
    ),
    TestedWorld("processes", Options(world={"kind": "processes", "shared_from": "1B", **_LATE})),
    TestedWorld(
        "namespaces",
        Options(
            world={"kind": "namespaces", **_LATE},
            on_messages=_BY_MESSAGE,
            look=network,
            a_kill_leaves=("socket files",),
        ),
        {
            ends.nothing_left: WorldDifference(
                "a supervisor that is killed leaves its socket in the run directory, which a resumed run takes over",
                ends.nothing_left_but_by_a_kill,
            ),
        },
    ),
    TestedWorld(
        "containers",
        Options(
            world={"kind": "containers", **_LATE},
            on_messages=_BY_MESSAGE,
            look=containers,
            a_kill_leaves=("socket files", "containers", "networks"),
        ),
        {
            ends.resume_of_a_killed_run: WorldDifference(
                "a killed run's containers are removed by the next run: it says that it can't be resumed",
                ends.refuses_to_resume,
            ),
            ends.nothing_left: WorldDifference(
                "a supervisor that is killed leaves its containers and sockets, which the next run takes away",
                ends.nothing_left_but_by_a_kill,
            ),
        },
    ),
)


# the table

PAGE = Path(__file__).parents[1] / "ARCHITECTURE.md"
BEGIN, END = "<!-- what each world can do: python -m tests.own_worlds -->", "<!-- end -->"


def table(worlds: Sequence[TestedWorld] = OWN_WORLDS) -> str:
    """The checks in words, and for each world whether it passes them, does otherwise, or can't."""
    rows = [["every world", *(f"`{world.name}`" for world in worlds)], ["---"] * (len(worlds) + 1)]
    rows += [[_words(check), *(_cell(world.differs.get(check)) for world in worlds)] for check in WORLD_CHECKS]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _words(check: Check) -> str:
    lines = (check.__doc__ or check.__name__).strip().splitlines()
    return f"{check.__name__.replace('_', ' ')}: {lines[0]}"


def _cell(row: WorldDifference | None) -> str:
    if row is None:
        return "yes"
    return f"{'no' if row.instead is None else 'otherwise'}: {row.why}"


def page(text: str) -> str:
    """ARCHITECTURE.md with the table of now."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}{END}{rest.split(END, 1)[1]}"


def main(arguments: list[str]) -> int:
    """Write the table, or with `--check` say whether it is up to date."""
    return write_or_check(PAGE, page(PAGE.read_text(encoding="utf-8")), "python -m tests.own_worlds", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
