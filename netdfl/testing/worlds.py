"""The conformance suite of worlds: what every world must do alike, from a fleet's start to what it leaves behind.

    MINE = TestedWorld("mine", Options(world={"kind": "my_package:my_world"}), differs={...})

    @pytest.fixture(scope="module")
    def bench():
        with Bench(MINE.options) as bench:
            yield bench

    @pytest.mark.parametrize("check", WORLD_CHECKS, ids=name_of)
    def test_conformance(check, bench):
        MINE.hold(check, bench)

What a world does otherwise by necessity, or can't do, is a row of its `differs`. `python -m netdfl.testing.worlds`
writes the table of netdfl's own worlds into ARCHITECTURE.md, `--check` says whether it is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias
from unittest import SkipTest

from netdfl.core.files import write_or_check
from netdfl.testing import world_ends as ends
from netdfl.testing import world_faults as faults
from netdfl.testing.leftovers import containers, network
from netdfl.testing.world_bench import Bench, Keys, Options

Check: TypeAlias = Callable[[Bench], None]

WORLD_CHECKS: tuple[Check, ...] = (
    ends.quickstart,
    ends.same_numbers_as_simulated,
    ends.whole_record,
    ends.two_at_once,
    faults.crash_is_no_death,
    faults.pause_and_resume,
    faults.crash_after_the_last_round,
    faults.crash_and_return_with_kept_state,
    faults.crash_and_return_with_lost_state,
    faults.crash_of_the_server,
    faults.kill_of_a_node,
    faults.stall_named_and_ended,
    faults.stall_skipped,
    ends.interrupt,
    ends.resume_of_a_killed_run,
    ends.full_disk,
    ends.nothing_left,
)


class Differs(NamedTuple):
    """What a world does otherwise, and why; `instead` is what is checked of it, None where it can't do it at all."""

    why: str
    instead: Check | None = None


def name_of(check: Check) -> str:
    """A check's name."""
    return check.__name__


@dataclass(frozen=True)
class TestedWorld:
    """A world, how its fleets are run, and what it does otherwise than others."""

    __test__ = False  # pytest takes it for no test of its own

    name: str
    options: Options
    differs: Mapping[Check, Differs] = field(default_factory=dict)

    def hold(self, check: Check, bench: Bench) -> None:
        """Hold this world to `check`, or to what it does instead. Raises AssertionError; SkipTest where it can't."""
        row = self.differs.get(check)
        if row is None:
            check(bench)
        elif row.instead is None:
            raise SkipTest(f"{self.name}: {row.why}")
        else:
            row.instead(bench)


_LATE: Keys = {"fidelity": {"relative": 100, "slack": "100s"}}
"""No check is about how well links keep their times."""
_BY_MESSAGE: Keys = {"loss_layer": "message"}

OWN_WORLDS = (
    TestedWorld(
        "simulated",
        Options(world={"kind": "simulated", "compute": "10ms"}, fleets_at_once=False, rounds_of_seconds=120),
        {
            ends.same_numbers_as_simulated: Differs(
                "it is the measure of the others, and repeats itself to the hash of its event log", ends.repeats_itself
            ),
            ends.two_at_once: Differs(
                "exact arithmetic is a setting of a whole process: two fleets run one after the other", ends.two_at_once
            ),
            faults.kill_of_a_node: Differs("its nodes have no process of their own that somebody could kill"),
            ends.resume_of_a_killed_run: Differs(
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
            ends.nothing_left: Differs(
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
            ends.resume_of_a_killed_run: Differs(
                "a killed run's containers are removed by the next run: it says that it can't be resumed",
                ends.refuses_to_resume,
            ),
            ends.nothing_left: Differs(
                "a supervisor that is killed leaves its containers and sockets, which the next run takes away",
                ends.nothing_left_but_by_a_kill,
            ),
        },
    ),
)


# the table

PAGE = Path(__file__).parents[2] / "ARCHITECTURE.md"
BEGIN, END = "<!-- what each world can do: python -m netdfl.testing.worlds -->", "<!-- end -->"


def table(worlds: Sequence[TestedWorld] = OWN_WORLDS) -> str:
    """The checks in words, and for each world whether it passes them, does otherwise, or can't."""
    rows = [["every world", *(f"`{world.name}`" for world in worlds)], ["---"] * (len(worlds) + 1)]
    rows += [[_words(check), *(_cell(world.differs.get(check)) for world in worlds)] for check in WORLD_CHECKS]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _words(check: Check) -> str:
    lines = (check.__doc__ or check.__name__).strip().splitlines()
    return f"{check.__name__.replace('_', ' ')}: {lines[0]}"


def _cell(row: Differs | None) -> str:
    if row is None:
        return "yes"
    return f"{'no' if row.instead is None else 'otherwise'}: {row.why}"


def page(text: str) -> str:
    """ARCHITECTURE.md with the table of now."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}{END}{rest.split(END, 1)[1]}"


def main(arguments: list[str]) -> int:
    """Write the table, or with `--check` say whether it is up to date."""
    return write_or_check(PAGE, page(PAGE.read_text(encoding="utf-8")), "python -m netdfl.testing.worlds", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
