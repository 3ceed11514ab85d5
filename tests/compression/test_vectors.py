"""A vector without torch computes what a tensor does; arrays that travel hold what was in the tensor."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from netdfl.compression import arrays
from netdfl.compression import vector as plain
from netdfl.compression.arrays import copy_finite, is_finite, scaled, snapshot, square, to_tensor
from netdfl.compression.base import EncodedVector
from netdfl.compression.catalog import COMPRESSORS
from netdfl.compression.low_rank import LowRank
from netdfl.compression.sparsify import Chain
from netdfl.compression.tensor_files import as_bytes, read
from netdfl.compression.vector import FEW_BYTES, SHORT_BYTES, finite, is_tensor, of_array, weighted_sum
from netdfl.core.errors import MalformedMessage
from netdfl.core.types import Array

A, B = np.array([3.0, -4.0, 0.5]), np.array([1.0, 2.0, -8.0])
ROWS = np.array([[3.0, 4.0], [0.0, -2.0], [1.0, 1.0]])
METHODS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a.add(b),
    "add a multiple": lambda a, b: a.add(b, alpha=0.5),
    "add in place": lambda a, b: a.add_(b),
    "add a multiple in place": lambda a, b: a.add_(b, alpha=-2.0),
    "add twice in place": lambda a, b: a.add_(b, alpha=2.0),
    "sub in place": lambda a, b: a.sub_(b),
    "mul in place": lambda a, b: a.mul_(3.0),
    "mul by a vector in place": lambda a, b: a.mul_(b),
    "div in place": lambda a, b: a.div_(4.0),
    "clone": lambda a, b: a.clone(),
    "zeros": lambda a, b: a.new_zeros((2, 3)),
    "sum": lambda a, b: a.sum(),
    "mean": lambda a, b: a.mean(),
    "square": lambda a, b: a.square(),
    "sqrt": lambda a, b: a.square().sqrt(),
    "norm": lambda a, b: a.norm(),
    "norm that stays": lambda a, b: a.norm(dim=-1, keepdim=True),
    "addcmul": lambda a, b: a.addcmul(b, a),
    "clamp": lambda a, b: a.clamp(max=0.25),
    "expand_as": lambda a, b: a[:1].expand_as(b),
    "isfinite": lambda a, b: (a / (b - 1.0)).isfinite(),
    "numel": lambda a, b: a.numel(),
    "floating": lambda a, b: a.is_floating_point(),
    "float64": lambda a, b: a.double(),
    "detach": lambda a, b: a.detach().cpu(),
    "as numpy": lambda a, b: a.numpy(),
}
OF_ROWS: dict[str, Callable[[Any], Any]] = {
    "sum along": lambda a: a.sum(0),
    "sum along the other": lambda a: a.sum(1),
    "mean along": lambda a: a.mean(0),
    "mean along the other": lambda a: a.mean(1),
    "mean": lambda a: a.mean(),
    "norms": lambda a: a.norm(dim=-1),
    "norms that stay": lambda a: a.norm(dim=-1, keepdim=True),
}


def equal(found: Any, expected: Any) -> bool:
    return bool(np.array_equal(np.asarray(found), np.asarray(expected))) and np.shape(found) == np.shape(expected)


@pytest.mark.parametrize("name", METHODS)
def test_a_vectors_methods_are_a_tensors(name: str) -> None:
    ours, theirs = plain.vector(A), torch.from_numpy(A.copy())
    with np.errstate(divide="ignore"):
        found = METHODS[name](ours, plain.vector(B))
    assert equal(found, METHODS[name](theirs, torch.from_numpy(B)))
    assert equal(ours, theirs), "in place where a tensor's is"
    if name == "clone":
        assert not np.shares_memory(found, ours)


@pytest.mark.parametrize("name", OF_ROWS)
def test_a_vector_of_rows_is_reduced_as_a_tensor_is(name: str) -> None:
    assert equal(OF_ROWS[name](plain.vector(ROWS)), OF_ROWS[name](torch.from_numpy(ROWS)))


def test_a_vector_is_on_the_cpu_and_of_the_kind_that_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found = plain.vector([1, 2])
    assert (found.is_cpu, found.is_cuda, found.device) == (True, False, "cpu")
    assert not found.is_floating_point()
    assert plain.vector([1, 2], np.float32).double().dtype == np.float64  # type: ignore[comparison-overlap]
    same = plain.vector([1.0])
    assert same.double() is same
    assert is_tensor(found)
    assert is_tensor(torch.ones(1))
    assert not is_tensor(np.ones(1))
    monkeypatch.delitem(sys.modules, "torch")
    assert is_tensor(found)
    assert not is_tensor(np.ones(1)), "and torch is not imported to be asked"


@pytest.mark.parametrize("num", [0, 1, 7])
@pytest.mark.parametrize("size", [1, SHORT_BYTES // 8, SHORT_BYTES // 8 + 1])
def test_a_weighted_sum_adds_up_in_order_and_leaves_all_as_it_was(num: int, size: int) -> None:
    rng = np.random.default_rng(num)
    own, others = rng.standard_normal(size), [rng.standard_normal(size) for _ in range(num)]
    weights = rng.random(num).tolist()
    expected = own * 0.3
    for other, weight in zip(others, weights, strict=True):
        expected = expected + other * weight
    given = [plain.vector(each) for each in (own, *others)]
    found = weighted_sum(given[0], 0.3, given[1:], weights)
    assert np.allclose(np.asarray(found), expected, rtol=1e-15, atol=1e-15)
    assert equal(given[0], own)
    assert all(equal(a, b) for a, b in zip(given[1:], others, strict=True))
    theirs = weighted_sum(torch.from_numpy(own), 0.3, [torch.from_numpy(each) for each in others], weights)
    assert np.allclose(theirs.numpy(), expected, rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("size", [1, FEW_BYTES // 8, FEW_BYTES // 8 + 1, 1000])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_number_that_is_not_finite_is_seen_and_numbers_that_add_up_to_it_are_not(size: int, bad: float) -> None:
    for made in (plain.vector, partial(torch.tensor, dtype=torch.float64)):
        assert finite(made([1e308] * size))  # type: ignore[operator]
        for at in {0, size // 2, size - 1}:
            numbers = np.zeros(size)
            numbers[at] = bad
            assert not finite(made(numbers))  # type: ignore[operator]


# arrays that travel

KINDS = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("shape", [(0,), (3,), (2, 3), (SHORT_BYTES,), (64, 65)])
def test_an_array_is_a_copy_of_the_tensor_with_its_kind_and_shape(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    made = torch.arange(int(np.prod(shape))).remainder(2).to(dtype).view(shape)
    kept, found = made.clone(), snapshot(made)
    made.zero_()
    assert found.shape == shape
    assert torch.equal(to_tensor(found), kept)
    assert to_tensor(found).dtype == dtype
    assert found.nbytes == kept.nbytes
    assert found.data.readonly


def test_a_tensor_that_lies_across_memory_is_laid_out_in_order() -> None:
    across = torch.arange(6.0).view(2, 3).t()
    for found in (snapshot(across), arrays.to_array(across), scaled(across, 1.0)):
        assert torch.equal(to_tensor(found), across)
    assert equal(of_array(plain.to_array(plain.vector(ROWS))), ROWS)
    assert plain.to_array(plain.vector(ROWS)).dtype == "float64"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_multiple_is_what_the_tensor_times_the_factor_is(dtype: torch.dtype) -> None:
    for size in (0, 5, 5000):
        x = torch.linspace(-1, 1, size).to(dtype)
        assert torch.equal(to_tensor(scaled(x, 0.3)), x * 0.3)
        exact = (x.double() * x.double()).sum()
        assert square(snapshot(x)) == pytest.approx(float(exact), rel=1e-5)
        wide = x.double() if dtype == torch.float64 else x.float()
        assert square(snapshot(x)) == float(torch.dot(wide, wide)), "in no type narrower than float32"


class OnGpu(Tensor):
    """A tensor that says that it lies on a GPU, where what is pinned is a copy."""

    is_cuda = True  # type: ignore[assignment]


def test_from_a_gpu_vectors_come_by_one_copy_into_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[bool] = []
    empty = torch.empty

    def pinning(*shape: Any, pin_memory: bool = False, **more: Any) -> Tensor:
        pinned.append(pin_memory)
        return empty(*shape, **more)

    monkeypatch.setattr(torch, "empty", pinning)
    there = torch.tensor([1.0, 2.0]).as_subclass(OnGpu)
    assert to_tensor(snapshot(there)).tolist() == [1.0, 2.0]
    assert to_tensor(scaled(there, 3.0)).tolist() == [3.0, 6.0]
    assert pinned == [True, True]


# what a peer may have sent


def factors(**changed: Any) -> EncodedVector:
    encoded = LowRank(rank=1).compress(torch.arange(6.0), np.random.default_rng(0))
    return EncodedVector(encoded.dim, {**encoded.arrays, **changed}, encoded.meta)


def test_factors_of_two_types_are_refused() -> None:
    names = sorted(factors().arrays)
    left = to_tensor(factors().arrays[names[0]])
    with pytest.raises(MalformedMessage, match="expected one dtype"):
        LowRank(rank=1).decompress(factors(**{names[0]: snapshot(left.double())}))


def test_a_chain_takes_a_sparsifier_that_keeps_values_as_they_are() -> None:
    random_k, qsgd = COMPRESSORS["random_k"], COMPRESSORS["qsgd"]
    with pytest.raises(ValueError, match="chain got a rescaled random_k, expected a sparsifier that keeps values"):
        Chain(random_k(unbiased=True), qsgd())


def test_counts_lengths_and_names_of_an_encoding_are_looked_at_before_anything_is_made_of_it() -> None:
    x = snapshot(torch.arange(4.0))
    good = EncodedVector(4, {"x": x}, {"k": 2})
    assert arrays.check_names(good, ["x"]) == 4
    assert arrays.read_count(good, "k", 2, 2) == 2
    assert arrays.read_numpy(good, "x", ["float32"], None).tolist() == [0, 1, 2, 3]
    assert arrays.read_finite(good, "x", 4).tolist() == [0, 1, 2, 3]
    for dim in (-1, 4.0, True, None):
        with pytest.raises(MalformedMessage, match=r"an encoded vector of dimension .*; expected a count"):
            arrays.read_dim(EncodedVector(dim, {}))  # type: ignore[arg-type]
    assert arrays.read_dim(EncodedVector(0, {})) == 0
    for names in ([], ["x", "y"], ["y"]):
        with pytest.raises(MalformedMessage, match=r"arrays \['x'\]; expected"):
            arrays.check_names(good, names)
    for low, high in ((3, 9), (0, 1)):
        with pytest.raises(MalformedMessage, match=f"k = 2; expected an integer from {low} to {high}"):
            arrays.read_count(good, "k", low, high)
    for value in (True, 2.0, None):
        with pytest.raises(MalformedMessage, match="expected an integer from 0 to 9"):
            arrays.read_count(EncodedVector(4, {}, {"k": value}), "k", 0, 9)  # type: ignore[dict-item]
    wrong = {"dtype": Array("float64", (4,), x.data), "shape": Array("float32", (2, 2), x.data)}
    for array in (*wrong.values(), Array("float32", (3,), x.data), Array("float32", (4,), x.data[::2])):
        with pytest.raises(MalformedMessage, match=r"array 'x' (is|has)"):
            arrays.read_array(EncodedVector(4, {"x": array}), "x", ["float32"], 4)
    with pytest.raises(MalformedMessage, match="array 'x' is missing; expected float32 or float64"):
        arrays.read_array(EncodedVector(4, {}), "x", arrays.FLOATS, 4)
    with pytest.raises(MalformedMessage, match=r"a scale of -1\.0; expected none below 0"):
        arrays.read_scales(EncodedVector(4, {"scales": snapshot(torch.tensor([0.0, -1.0]))}), 2)
    assert arrays.read_scales(EncodedVector(0, {"scales": snapshot(torch.tensor([]))}), 0).size == 0
    assert arrays.read_scales(EncodedVector(2, {"scales": snapshot(torch.zeros(2))}), 2).tolist() == [0, 0]


# files


def test_a_file_holds_vectors_and_tensors_alike_and_what_is_said_of_them(tmp_path: Path) -> None:
    path, whole = tmp_path / "file", torch.arange(4.0)
    brain = torch.tensor([1.5, -2.0]).bfloat16()
    kinds: list[tuple[dict[str, Any], dict[str, str], bool]] = [
        ({"a": plain.vector([1.0, 2.0])}, {}, True),
        ({"a": plain.vector([1.0, 2.0]), "b": brain}, {"said": "so"}, True),
        ({"a": whole[::2], "b": whole[::2]}, {"said": "so"}, True),
        ({"a": whole, "b": whole[:2]}, {"said": "so"}, False),
    ]
    for tensors, said, apart in kinds:
        path.write_bytes(as_bytes(tensors, said, apart=apart))
        found, metadata = read(path, torch=True)
        assert metadata == said
        assert found.keys() == tensors.keys()
        assert all(torch.equal(found[name], torch.as_tensor(tensors[name])) for name in found)
    with pytest.raises(RuntimeError, match="share memory"):
        as_bytes({"a": whole, "b": whole[:2]}, {})
    back, _ = read(path, torch=False)
    assert all(isinstance(each, plain.Vector) and equal(each, tensors[name]) for name, each in back.items())


LONG = 33 * 8192 + 5
"""Many times of what is looked at together, and some."""


@pytest.mark.parametrize("size", [3, 8191, 8192, 8193, 32 * 8192, LONG])
def test_the_first_number_that_is_not_finite_is_named_wherever_it_is(size: int) -> None:
    x = np.full(size, 1e300)
    assert is_finite(x), "though its square is not"
    copy = copy_finite(x)
    assert np.array_equal(copy, x)
    assert not np.shares_memory(copy, x)
    for at in {0, size // 2, size - 1}:
        bad = x.copy()
        bad[at] = np.nan
        assert not is_finite(bad)
        with pytest.raises(ValueError, match=rf"x\[{at}\] is nan, and 1 of {size} numbers are NaN or infinite"):
            copy_finite(bad)
