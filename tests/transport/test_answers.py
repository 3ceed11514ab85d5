"""The word that stands for a receipt: it says what the receipt would, or there is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdfl.transport.base import MOST_NS, Fate, is_plausible
from netdfl.transport.grpc.receipts import HELLO_FIRST
from netdfl.transport.shared_memory.base import BROKEN_CALL, Answer

IN_WORDS = (Fate.DELIVERED, Fate.LATE, Fate.DUPLICATE, Fate.IN_FLIGHT, None)


@given(st.sampled_from(IN_WORDS), st.integers(1 - MOST_NS, MOST_NS - 1))
def test_a_word_says_what_the_receipt_says(fate: Fate | None, arrived_ns: int) -> None:
    word = Answer(fate, arrived_ns).word
    assert 0 < word < 1 << 64
    assert Answer.of_word(word) == (fate, arrived_ns)


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.GONE, HELLO_FIRST, BROKEN_CALL])
def test_there_is_no_word_for_other_fates(fate: Fate) -> None:
    assert Answer(fate, 0).word == 0


@pytest.mark.parametrize("arrived_ns", [MOST_NS, -MOST_NS, 1 << 70])
def test_there_is_no_word_for_a_time_that_can_not_be(arrived_ns: int) -> None:
    assert Answer(Fate.DELIVERED, arrived_ns).word == 0


@given(st.integers(0, (1 << 64) - 1))
def test_whatever_lies_in_memory_is_an_answer_that_may_be_told(word: int) -> None:
    fate, arrived_ns = Answer.of_word(word)
    assert fate is None or is_plausible(fate.text, arrived_ns)
    assert fate == BROKEN_CALL or Answer(fate, arrived_ns or 0).word in (word, 0)
