"""The suite of worlds in containers, each of which costs more than the process in it.

Rarely is what the supervisor does alike wherever nodes are, what `test_containers.py` does to a fleet as well, and what
needs an image with PyTorch, which takes CI longer to make than all tests of containers to run. `tests.soak.in_full` has
all that is rare.
"""

from __future__ import annotations

from netdfl.testing.world_ends import (
    full_disk,
    interrupt,
    quickstart,
    same_numbers_as_simulated,
    two_at_once,
    whole_record,
)
from netdfl.testing.world_faults import (
    crash_after_the_last_round,
    crash_and_return_with_kept_state,
    crash_and_return_with_lost_state,
    crash_is_no_death,
    crash_of_the_server,
    kill_of_a_node,
    late_join,
    pause_and_resume,
    stall_named_and_ended,
    stall_skipped,
)
from netdfl.testing.world_links import shared_core_link
from tests.suite_of_worlds import suite_of

RARELY = (
    crash_after_the_last_round,
    crash_and_return_with_kept_state,
    crash_and_return_with_lost_state,
    crash_is_no_death,
    crash_of_the_server,
    kill_of_a_node,
    late_join,
    pause_and_resume,
    stall_named_and_ended,
    stall_skipped,
    shared_core_link,
    interrupt,
    full_disk,
    quickstart,
    same_numbers_as_simulated,
    whole_record,
    two_at_once,
)
bench, test_conformance = suite_of("containers", RARELY)
