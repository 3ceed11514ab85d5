"""All interleavings of lender and reader: nobody reads another message's body, and no buffer is lost for good.

The model is `lending_model.py`; that the code takes the model's steps is tested here, too.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from lending_model import Rules, State, Violation, leaked, walk

MISTAKEN = "the reader of 1 reads the body of 2|the answer to 1 is taken for the answer to 2"
"""Which of the two is met first depends on the order of the walk."""


def test_nobody_reads_another_body_and_every_buffer_can_be_free_again() -> None:
    """Whatever order stores reach memory in; readers die, leave, return and stand still wherever they are."""
    found = walk(Rules(in_order=False))
    assert leaked(found) == []
    assert {len(state.taken) for state in found} == {0, 1, 2}
    assert {state.life for state in found} == {1, 2}


def test_a_buffer_is_free_again_though_its_reader_lives_on() -> None:
    """Its word alone frees, also after streams that broke."""
    assert leaked(walk(Rules(num_tokens=3, num_lives=1, lives_end=False))) == []


@pytest.mark.parametrize(
    ("rules", "promise"),
    [
        pytest.param(Rules(takes_back=True, num_lives=1), MISTAKEN, id="earlier protocol"),
        pytest.param(Rules(asks_reader=False, buffered=False), MISTAKEN, id="no renewal"),
        pytest.param(Rules(names_life=False), MISTAKEN, id="references without life"),
        pytest.param(Rules(messages_wait=False), MISTAKEN, id="messages before stores"),
        pytest.param(Rules(fence_at_giving_back=False), MISTAKEN, id="no fence at giving back"),
        pytest.param(Rules(fence_at_leaving=False, in_order=False), MISTAKEN, id="no fence at leaving"),
        pytest.param(Rules(ends_waiting=False), "message 1 is delivered twice", id="calls go on waiting"),
    ],
)
def test_without_one_of_its_steps_the_protocol_breaks_a_promise(rules: Rules, promise: str) -> None:
    with pytest.raises(Violation, match=promise):
        walk(rules)


@pytest.mark.parametrize("change", [{"buffered": False}, {"fence_at_looking": True}])
def test_the_earlier_protocol_failed_by_store_buffers_alone(change: dict[str, bool]) -> None:
    """It stored and then loaded another word, on both sides: right with a fence there, wrong without."""
    assert leaked(walk(Rules(takes_back=True, num_lives=1, **change))) == []


def test_a_buffer_that_nobody_frees_is_found() -> None:
    """The search for leaks can fail."""
    lost, free = State(token=1), State()
    assert leaked({lost: [lost], free: [lost]}) == [lost]


def test_a_sample_of_the_soak_finds_nothing() -> None:
    """Real readers, killed and stopped at accesses to the memory; `tests/soak/shared_buffers.py` runs millions."""
    command = [sys.executable, "-m", "tests.soak.shared_buffers", "--count", "1500", "--sample"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing was wrong" in done.stdout
