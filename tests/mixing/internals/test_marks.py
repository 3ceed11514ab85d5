"""The mark by which both ends know that they have the same reference."""

from __future__ import annotations

import torch

from netdfl.compression.arrays import snapshot
from netdfl.compression.catalog import COMPRESSORS
from netdfl.compression.identity import IdentityCompressor
from netdfl.core.types import Payload, View
from netdfl.mixing.compressed.references import FULL, Differences, _mark

X = torch.tensor([1.0, -2.0, 0.5, 4.0], dtype=torch.float64)
AT = View(0, 0, 2, (1,), (1,), 0.5, {1: 0.5}, {1: 0.5})
QSGD = COMPRESSORS["qsgd"]()


def test_what_loses_nothing_is_sent_whole_and_what_loses_something_by_its_difference() -> None:
    for compressor, whole in ((IdentityCompressor(), True), (QSGD, False)):
        how = Differences(compressor=compressor)
        assert how.lossless(4) is whole
        begun = how.first(X).start
        assert (begun.version, begun.mark) == (0, _mark(0, Payload({FULL: snapshot(torch.zeros_like(X))})))
        reference, payload = how.send(how.first(X).start, X, AT, 0)
        assert (set(payload.arrays) == {FULL}) is whole
        assert ("mark" in payload.meta) is not whole
        assert reference.version == payload.meta["version"] == 1
