"""What saves passes over a vector, or memory, changes no bit and leaves nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_catalog import VARIANTS

from netdfl.compression.arrays import as_vector
from netdfl.compression.base import AddingCompressor, Compressor, EncodedVector, add_to
from netdfl.compression.buckets import PIECE, SPAN, BucketSpan, spans
from netdfl.compression.dither import fractions
from netdfl.compression.scratch import MOST_BYTES, difference, scratch
from netdfl.core.errors import MalformedMessage
from netdfl.mixing.compressed.step_size import ScaledCompressor

FLOATS = (torch.float32, torch.float64, torch.bfloat16)
COMPRESSORS: dict[str, Callable[..., Compressor]] = {
    **VARIANTS,
    "steady": lambda: ScaledCompressor(VARIANTS["qsgd-scaled"]()),
    "steady-half": lambda: ScaledCompressor(VARIANTS["qsgd-2"]()),
}


def vector(dim: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.from_numpy(np.random.default_rng(seed).standard_normal(dim)).to(dtype)
    x[::7] = -0.0
    return x


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and one.double().numpy().tobytes() == other.double().numpy().tobytes()


@pytest.mark.parametrize("make", COMPRESSORS.values(), ids=COMPRESSORS.keys())
@settings(max_examples=15, deadline=None)
@given(dim=st.integers(0, 2000), seed=st.integers(0, 2**32), said=st.sampled_from(FLOATS), base=st.sampled_from(FLOATS))
@example(dim=2 * SPAN * PIECE + 700, seed=0, said=torch.float32, base=torch.float32)
def test_adding_is_decoding_and_then_adding(
    make: Callable[[], Compressor], dim: int, seed: int, said: torch.dtype, base: torch.dtype
) -> None:
    compressor, start = make(), vector(dim, seed + 1, base)
    encoded = compressor.compress(vector(dim, seed, said), np.random.default_rng(seed))
    before = start.clone()
    assert same_bits(add_to(compressor, start, encoded), start + compressor.decompress(encoded).to(base))
    assert same_bits(start, before)


def test_the_fused_way_is_the_one_that_is_tested() -> None:
    assert issubclass(type(VARIANTS["qsgd"]()), AddingCompressor)
    assert issubclass(ScaledCompressor, AddingCompressor)
    assert ScaledCompressor(VARIANTS["qsgd-2"]()).part(4096) < 1.0
    assert ScaledCompressor(VARIANTS["qsgd-scaled"]()).part(4096) == 1.0


def test_what_lies_elsewhere_is_brought_here_or_decoded_and_then_sent_there() -> None:
    """The device without memory stands for any other."""
    qsgd, elsewhere = VARIANTS["qsgd"](), torch.empty(9, device="meta")
    assert add_to(qsgd, elsewhere, qsgd.compress(vector(9, 0), np.random.default_rng(0))).device.type == "meta"
    assert difference(elsewhere, elsewhere).device.type == "meta"
    one, other = vector(9, 0), vector(9, 1)
    assert difference(one, other).data_ptr() == difference(other, one).data_ptr(), "until the next one in this thread"
    with pytest.raises(NotImplementedError, match="copy out of meta tensor"):
        as_vector(elsewhere)


@pytest.mark.parametrize("code", [0, 255])
def test_a_level_that_there_is_not_is_refused_when_it_is_added(code: int) -> None:
    compressor = VARIANTS["qsgd"](levels=127 if code == 0 else 100)
    encoded = compressor.compress(vector(100, 0), np.random.default_rng(0))
    raw = np.full(encoded.arrays["codes"].data.nbytes, code, np.uint8)
    codes = {**encoded.arrays, "codes": type(encoded.arrays["codes"])("uint8", raw.shape, raw.data)}
    with pytest.raises(MalformedMessage, match="level beyond"):
        add_to(compressor, torch.zeros(100), EncodedVector(100, codes, encoded.meta))


@pytest.mark.parametrize("make", VARIANTS.values(), ids=VARIANTS.keys())
def test_what_was_encoded_and_decoded_stays_when_more_is(make: Callable[[], Compressor]) -> None:
    compressor, rng = make(), np.random.default_rng(0)

    def all_of(seed: int) -> tuple[list[Any], list[bytes]]:
        x, start = vector(1300, seed), vector(1300, seed + 1)
        encoded = compressor.compress(difference(x, start), rng)
        made = [a.data for a in encoded.arrays.values()]
        made += [t.numpy() for t in (compressor.decompress(encoded), add_to(compressor, start, encoded))]
        return made, [bytes(each) for each in made]

    first, contents = all_of(0)
    all_of(5)
    assert [bytes(each) for each in first] == contents


@settings(max_examples=300, deadline=None)
@given(dim=st.integers(0, 20 * PIECE), bucket=st.integers(0, 6 * PIECE))
@example(dim=159_010, bucket=512)
@example(dim=SPAN * PIECE + 1, bucket=0)
def test_spans_cover_a_vector_and_its_buckets_in_order(dim: int, bucket: int) -> None:
    covering, size = spans(dim, bucket), bucket or max(dim, 1)
    assert [0, *(span.stop for span in covering)] == [*(span.start for span in covering), dim]
    for span in covering:
        assert sum(span.pieces) == span.stop - span.start <= span.numel
        assert max(span.pieces) <= PIECE
        assert span.buckets.start == span.start // size
        assert span.buckets.stop == -(-span.stop // size)
        assert len(span.pieces) == 1 or all(length == span.pieces[0] for length in span.pieces[:-2])


def test_a_span_is_of_numbers_that_stay_in_a_cache_and_of_its_own_numbers() -> None:
    """Another length would draw other bits for the same seed."""
    assert spans(70_000, 0)[0].pieces == (65_536, 4_464)
    middle = BucketSpan(1, 2, slice(1, 2), 1, (1,))
    assert middle.of(torch.arange(3)).tolist() == [1]
    assert middle.of(torch.arange(1)).tolist() == [0]


@pytest.mark.parametrize("num", [4, 512, PIECE - PIECE % 100, PIECE, 290, 7, 1])
@pytest.mark.parametrize("double", [False, True])
def test_random_bits_are_those_of_16_bits_at_a_time(num: int, double: bool) -> None:
    (floats,) = fractions(np.random.default_rng(3), spans(num, 0), 0, double=double)
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2**16, num, np.uint16) | np.uint16(1)
    shift = rng.integers(0, 2**15, 1, np.uint16) << np.uint16(1)
    expected = (bits ^ shift) / 2**16 + (2**20 if double else 2**7)
    assert np.array_equal(floats.numpy()[:num].astype(np.float64), expected)


def test_threads_have_their_own_scratch_and_long_ones_are_not_kept() -> None:
    mine = scratch("a", 10, torch.float32)
    assert scratch("a", 10, torch.float32) is mine
    assert scratch("b", 10, torch.float32) is not mine
    theirs: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: theirs.append(scratch("a", 10, torch.float32)))
    thread.start()
    thread.join()
    assert theirs[0].data_ptr() != mine.data_ptr()
    most = MOST_BYTES // 4
    assert scratch("a", most, torch.float32) is scratch("a", most, torch.float32)
    large = most + 1
    assert scratch("a", large, torch.float32) is not scratch("a", large, torch.float32)
