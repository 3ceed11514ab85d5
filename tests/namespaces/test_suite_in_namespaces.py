"""The suite of worlds in namespaces. Rare is what its supervisor does exactly as in `processes`, and slowly."""

from __future__ import annotations

from netdfl.testing.world_ends import resume_of_a_killed_run
from netdfl.testing.world_faults import (
    crash_and_return_with_kept_state,
    crash_and_return_with_lost_state,
    crash_is_no_death,
    kill_of_a_node,
    late_join,
    stall_skipped,
)
from tests.suite_of_worlds import suite_of

RARELY = (
    crash_and_return_with_kept_state,
    crash_and_return_with_lost_state,
    crash_is_no_death,
    kill_of_a_node,
    late_join,
    stall_skipped,
    resume_of_a_killed_run,
)
bench, test_conformance = suite_of("namespaces", RARELY)
