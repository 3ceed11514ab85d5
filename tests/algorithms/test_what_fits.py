"""Which exchange a method takes: what is refused is refused by a sentence of its own, the rest is built."""

from __future__ import annotations

from typing import Any

import pytest

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange
from netdfl.compression.catalog import COMPRESSORS

QSGD = COMPRESSORS["qsgd"]()
SCHEMES = ("auto", "choco", "deepsqueeze", "unsafe", "edge", "push_sum", "plain", "ef14", "ef21")
FITS = {
    "dpsgd": ("gossip", {"auto", "choco", "deepsqueeze", "unsafe"}),
    "sgp": ("push-sum", {"auto", "edge", "push_sum"}),
    "fedavg": ("a server", {"auto", "plain", "ef14", "ef21"}),
}


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_scheme_is_for_one_family(name: str, scheme: Any) -> None:
    family, schemes = FITS[name]
    exchange = Exchange(compressor=QSGD, scheme=scheme)
    more = {"weighting": "uniform"} if family == "a server" else {}
    if scheme in schemes:
        assert ALGORITHMS[name].build(exchange, lr=0.1, **more)
    else:
        with pytest.raises(ValueError, match=f"scheme {scheme} is not for {family}"):
            ALGORITHMS[name].build(exchange, lr=0.1, **more)


@pytest.mark.parametrize("on_missing", ["self", "last", "renormalise", "undo"])
@pytest.mark.parametrize("name", ["choco_sgd", "dpsgd", "delicoco"])
def test_references_agree_only_where_a_missing_neighbor_changes_none(name: str, on_missing: Any) -> None:
    exchange = Exchange(compressor=QSGD, on_missing=on_missing)
    if on_missing in ("self", "last"):
        assert ALGORITHMS[name].build(exchange, lr=0.1)
    else:
        with pytest.raises(ValueError, match=f"choco can't {on_missing}, because references"):
            ALGORITHMS[name].build(exchange, lr=0.1)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("ad_psgd", "ad_psgd exchanges whole vectors; remove compression"),
        ("overlap_sgp", "shares that overlap with training travel whole; remove compression"),
        ("lian_dpsgd", "lian_dpsgd averages whole models"),
        ("dispfl", "dispfl sends sparse vectors already"),
        ("slowmo", "slowmo needs the exact average"),
    ],
)
def test_who_can_not_compress_says_so(name: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ALGORITHMS[name].build(Exchange(compressor=QSGD), lr=0.1)
    assert ALGORITHMS[name].build(Exchange(), lr=0.1)


def test_running_sums_and_exact_extras_go_uncompressed() -> None:
    with pytest.raises(ValueError, match="running sums grow without end"):
        ALGORITHMS["sgp"].build(Exchange(compressor=QSGD, delivery="running_sums"), lr=0.1)
    with pytest.raises(ValueError, match="extras: compressed is for what a server adds up"):
        ALGORITHMS["fedavg"].build(Exchange(compressor=QSGD, extras="compressed"), lr=0.1, weighting="uniform")
    assert ALGORITHMS["scaffold"].build(Exchange(compressor=QSGD, extras="compressed"), lr=0.1)
    with pytest.raises(ValueError, match="weighting: uniform"):
        ALGORITHMS["fedavg"].build(Exchange(compressor=QSGD, scheme="ef21"), lr=0.1, weighting="samples")
