"""Compressors where something ends: at a border of what is looked at at once, of a type, of a size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from netdfl.compression import qsgd
from netdfl.compression.buckets import PIECE, SPAN, spans
from netdfl.compression.catalog import COMPRESSORS
from netdfl.compression.low_rank import LowRank

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_identity_sends_each_number_in_its_own_type(dtype: torch.dtype) -> None:
    x, identity = torch.linspace(-1, 1, 9).to(dtype), COMPRESSORS["identity"]()
    sent = identity.compress(x, np.random.default_rng(0))
    assert sent.nbytes == 9 * x.element_size()
    found = identity.decompress(sent)
    assert found.dtype == dtype
    assert torch.equal(found, x)
    assert not identity.variance(9)


@pytest.mark.parametrize("exponent", [-1000, -600, -300, 0, 300, 600, 1000])
def test_a_product_of_low_rank_is_as_near_at_any_size(exponent: int) -> None:
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(50))
    compressor = LowRank(rank=2)
    plain = compressor.decompress(compressor.compress(x, np.random.default_rng(1)))
    scaled = compressor.decompress(compressor.compress(x * 2.0**exponent, np.random.default_rng(1)))
    torch.testing.assert_close(scaled / 2.0**exponent, plain, rtol=1e-9, atol=1e-12)
    for zero in (torch.zeros(50), torch.zeros(0)):
        assert not compressor.decompress(compressor.compress(zero, np.random.default_rng(1))).any()


@pytest.mark.parametrize(
    ("dtype", "bits", "double"),
    [
        *((torch.float32, 2, False), (torch.float32, 8, False), (torch.float32, 9, True), (torch.float32, 16, True)),
        *((torch.float16, 8, False), (torch.float64, 2, True), (torch.float64, 8, True)),
    ],
)
def test_levels_are_worked_out_in_float64_where_float32_has_too_few_bits(
    dtype: torch.dtype, bits: int, double: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, fractions = list[bool](), qsgd.fractions

    def watched(rng: Any, spans: Any, offset: int, *, double: bool) -> Any:
        asked.append(double)
        return fractions(rng, spans, offset, double=double)

    monkeypatch.setattr(qsgd, "fractions", watched)
    COMPRESSORS["qsgd"](bits=bits).compress(torch.ones(9).to(dtype), np.random.default_rng(0))
    assert asked == [double]


def test_a_bucket_of_several_spans_is_of_one_row_in_each() -> None:
    covering = spans(SPAN * PIECE + 700, 0)
    assert [(span.stop - span.start, span.width, span.numel) for span in covering] == [
        *((length, length, length) for length in (SPAN * PIECE, 700)),
    ]
    x = torch.linspace(-1, 1, SPAN * PIECE + 700, dtype=torch.float64)
    compressor = COMPRESSORS["sign"](bucket=0)
    found = compressor.decompress(compressor.compress(x, np.random.default_rng(0)))
    torch.testing.assert_close(found, torch.where(x < 0, -1.0, 1.0).double() * x.abs().mean())


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_a_cast_is_to_the_nearest_number_and_refuses_what_is_beyond(name: Any) -> None:
    kind = getattr(torch, name)
    x = torch.linspace(-3, 3, 50, dtype=torch.float64)
    compressor = COMPRESSORS[name]()
    sent = compressor.compress(x, np.random.default_rng(0))
    assert (sent.nbytes, compressor.decompress(sent).dtype) == (100, torch.float32)
    assert torch.equal(compressor.decompress(sent), x.to(kind).float())
    most = torch.finfo(kind).max
    assert float(compressor.decompress(compressor.compress(torch.tensor([most]), np.random.default_rng(0)))) == most
    other = "use bfloat16, lower" if name == "float16" else "lower"
    with pytest.raises(ValueError, match=rf"is beyond {name}, whose largest is .*: {other} the learning rate"):
        compressor.compress(torch.tensor([most * 1.01], dtype=torch.float64), np.random.default_rng(0))
    assert math.isclose(compressor.variance(5), torch.finfo(kind).eps ** 2 / 4)
