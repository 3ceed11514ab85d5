"""Memory that is written anew is kept up to a bound, and long vectors are worked on in stretches."""

from __future__ import annotations

import torch

from netdfl.compression import scratch as kept
from netdfl.compression.scratch import scratch, stretches


def test_many_lengths_do_not_keep_memory_for_ever() -> None:
    for num in range(500):
        scratch("many", num, torch.float32)
    assert len(kept._kept.buffers) <= kept._MOST_KEPT


def test_stretches_are_the_same_parts_of_all() -> None:
    num = 2 * kept._STRETCH + 5
    x, y = torch.arange(num), torch.arange(num) + 1
    parts = list(stretches(x, y))
    assert len(parts) == 3
    assert torch.equal(torch.cat([part for part, _ in parts]), x)
    assert all(torch.equal(b, a + 1) for a, b in parts)
