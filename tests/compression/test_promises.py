"""What each compressor promises of itself: its bound by the formula, worked out by hand, at the edges too."""

from __future__ import annotations

from typing import Any

import pytest

from netdfl.compression.catalog import COMPRESSORS

PROMISED: list[tuple[str, dict[str, Any], int, float]] = [
    ("identity", {}, 100, 0),
    ("float16", {}, 100, 2.0**-22),
    ("bfloat16", {}, 100, 2.0**-16),
    # l2: min(B / s^2, sqrt(B) / s), with s = 3 and 127 levels and B = 16, 100 and 9
    ("qsgd", {"bits": 3, "bucket": 16, "norm": "l2"}, 100, 4 / 3),
    ("qsgd", {"bits": 8, "bucket": 16, "norm": "l2"}, 100, 16 / 127**2),
    ("qsgd", {"bits": 3, "bucket": 0, "norm": "l2"}, 100, 10 / 3),
    ("qsgd", {"bits": 3, "norm": "l2"}, 9, 1),
    ("qsgd", {"bits": 3, "norm": "l2"}, 0, 0),
    # max: min((B - 1) / (4 s^2), (1 + sqrt(B)) / (2 s))
    ("qsgd", {"bits": 3, "bucket": 16}, 100, 15 / 36),
    ("qsgd", {"bits": 2, "bucket": 16}, 100, 5 / 2),
    ("qsgd", {"bits": 3, "bucket": 16, "scaled": True}, 100, 15 / 51),
    ("qsgd", {"levels": 3, "bucket": 16}, 100, 15 / 36),
    ("qsgd", {"levels": 3, "bucket": 1024}, 2000, 33 / 6),
    ("qsgd", {"bits": 3}, 1, 0),
    ("qsgd", {"bits": 3}, 0, 0),
    ("qsgd", {"bits": 1, "bucket": 16}, 100, 1 - 1 / 16),
    ("sign", {"bucket": 16}, 100, 1 - 1 / 16),
    ("sign", {}, 5, 1 - 1 / 5),
    ("sign", {"bucket": 0}, 100, 1 - 1 / 100),
    ("sign", {}, 1, 0),
    ("sign", {}, 0, 0),
    # 1 - r / min(n, m): 10 x 10, 3 x 3, 3 x 2, 1 x 1
    ("low_rank", {"rank": 2}, 100, 1 - 2 / 10),
    ("low_rank", {"rank": 2}, 7, 1 - 2 / 3),
    ("low_rank", {"rank": 1}, 5, 1 - 1 / 2),
    ("low_rank", {"rank": 4}, 5, 0),
    ("low_rank", {"rank": 4}, 1, 0),
    ("low_rank", {}, 0, 0),
    ("top_k", {"fraction": 0.1}, 100, 0.9),
    ("top_k", {"fraction": 0.1, "method": "threshold"}, 100, 0.92),
    ("top_k", {"count": 7}, 100, 0.93),
    ("top_k", {"count": 7}, 5, 0),
    ("top_k", {"fraction": 0.001}, 10, 0.9),
    ("top_k", {}, 0, 0),
    ("random_k", {"fraction": 0.25}, 100, 0.75),
    ("random_k", {"fraction": 0.25, "unbiased": True}, 100, 3),
    ("random_k", {"unbiased": True}, 0, 0),
    ("random_k", {"count": 20, "fraction": 0}, 100, 0.8),
    # max(v, 1 - w + w v), with v = 9 / 36 of ten numbers at 3 levels and 99 / 4 of a hundred at one
    ("chain", {"bits": 3}, 100, 0.9 + 0.1 * 9 / 36),
    ("chain", {"fraction": 1, "bits": 3, "select": "random_k"}, 10, 9 / 36),
    ("chain", {"fraction": 0.5, "bits": 2, "bucket": 0}, 200, 11 / 2),
]


@pytest.mark.parametrize(("name", "parameters", "dim", "variance"), PROMISED)
def test_the_promised_variance_is_that_of_the_formula(
    name: str, parameters: dict[str, Any], dim: int, variance: float
) -> None:
    compressor = COMPRESSORS[name](**parameters)
    assert compressor.variance(dim) == pytest.approx(variance, rel=1e-12, abs=1e-15)
    assert compressor.contraction(dim) == pytest.approx(max(0.0, 1 - variance), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("identity", {}), ("qsgd", {}), ("qsgd", {"scaled": True}), ("random_k", {"unbiased": True}), ("random_k", {})]
    + [(name, {}) for name in ("float16", "bfloat16", "sign", "low_rank", "top_k", "chain")],
)
def test_what_is_unbiased_says_so(name: str, parameters: dict[str, Any]) -> None:
    unbiased = {"identity": True, "qsgd": "scaled" not in parameters, "random_k": "unbiased" in parameters}
    assert COMPRESSORS[name](**parameters).unbiased == unbiased.get(name, False)


@pytest.mark.parametrize("name", ["top_k", "random_k", "chain"])
def test_what_would_send_nothing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="send nothing"):
        COMPRESSORS[name](fraction=0, count=0)
    COMPRESSORS[name](fraction=0, count=1)


@pytest.mark.parametrize("name", ["qsgd", "chain"])
@pytest.mark.parametrize("more", [{"scaled": True}, {"entropy": True}])
def test_one_bit_is_the_sign_and_has_no_scale_and_no_codes(name: str, more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is the sign compressor"):
        COMPRESSORS[name](bits=1, **more)
    COMPRESSORS[name](bits=2, **more)
    COMPRESSORS["qsgd"](bits=1, levels=1, **more)
