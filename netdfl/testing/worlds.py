"""The conformance suite of worlds (ways to execute a fleet, such as simulation or processes).

It checks the behavior that all worlds have in common, from a fleet's start to the resources that it leaves behind.

    MINE = TestedWorld("mine", Options(world={"kind": "my_package:my_world"}), differs={...})

    @pytest.fixture(scope="module")
    def bench():
        with Bench(MINE.options) as bench:
            yield bench

    @pytest.mark.parametrize("check", WORLD_CHECKS, ids=name_of)
    def test_conformance(check, bench):
        MINE.hold(check, bench)

A necessary difference of a world, or something that it can't do, is a row of its `differs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from unittest import SkipTest

from netdfl.core.renamed import renamed
from netdfl.testing import world_ends as ends
from netdfl.testing import world_faults as faults
from netdfl.testing import world_links as links
from netdfl.testing.world_bench import Bench, Options

Check: TypeAlias = Callable[[Bench], None]

WORLD_CHECKS: tuple[Check, ...] = (
    ends.quickstart,
    ends.same_numbers_as_simulated,
    ends.whole_record,
    ends.two_at_once,
    faults.crash_is_no_death,
    faults.late_join,
    faults.pause_and_resume,
    faults.crash_after_the_last_round,
    faults.crash_and_return_with_kept_state,
    faults.crash_and_return_with_lost_state,
    faults.crash_of_the_server,
    faults.kill_of_a_node,
    faults.stall_named_and_ended,
    faults.stall_skipped,
    links.shared_core_link,
    ends.interrupt,
    ends.resume_of_a_killed_run,
    ends.full_disk,
    ends.nothing_left,
)


class WorldDifference(NamedTuple):
    """A difference of one world from the others, so that a check of the suite does not apply to it; `why` describes it.

    `instead` is the check that replaces the usual one; None: the check is skipped.
    """

    why: str
    instead: Check | None = None


def name_of(check: Check) -> str:
    """Return a check's function name, as the test id for pytest."""
    return check.__name__


@dataclass(frozen=True)
class TestedWorld:
    """A world (way to execute a fleet) under test, the options for its test fleets, and its differences from others."""

    __test__ = False  # the name looks like a test class to pytest

    name: str
    options: Options
    differs: Mapping[Check, WorldDifference] = field(default_factory=dict)

    def hold(self, check: Check, bench: Bench) -> None:
        """Run `check` on this world, or the check that replaces it there.

        Raises AssertionError if it fails, SkipTest if this world skips it.
        """
        row = self.differs.get(check)
        if row is None:
            check(bench)
        elif row.instead is None:
            raise SkipTest(f"{self.name}: {row.why}")
        else:
            row.instead(bench)


if not TYPE_CHECKING:
    __getattr__ = renamed(__name__, {"Differs": "WorldDifference"})
