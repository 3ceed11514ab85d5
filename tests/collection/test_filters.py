"""Which runs a filter chooses, and what it says where it can't be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.collection.filters import Filter, Names, Number, as_number
from netdfl.collection.labels import Labels
from netdfl.collection.listing import ListRequest, select
from netdfl.collection.rows import RunRow
from netdfl.core.errors import InputError


def row(place: str, keys: dict[str, str], started: str = "2026-11-20 10:00:00", **more: object) -> RunRow:
    facts = {"name": "small", "seed": 2, "accuracy": 0.9, "nbytes": 2_000_000}
    told = {"path": Path(place), "place": place, "started": started, "state": "finished", "verdict": "pass"}
    return RunRow(**{**told, "facts": facts, "keys": keys, **more})  # type: ignore[arg-type]


A = row("a", {"algorithm.lr": "0.05", "links.default.latency": "5ms", "x.deep.lr": "9"})
B = row(
    "b", {"algorithm.lr": "0.1", "links.default.latency": "1s"}, "2026-11-21 09:00:00", tags=("base", "slow uplinks")
)
C = row("c", {"algorithm.lr": "1e1", "links.default.loss": "5%"}, "2026-12-01 00:00:00", verdict="fail")
D = row("d", {"algorithm.lr": "auto", "links.default.rate.rate": "10Mbit"}, facts={})
ROWS = [A, B, C, D]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("", "abcd"),
        ("lr > 0.1", "c"),
        ("lr>=0.1", "bc"),
        ("lr < 0.1", "a"),
        ("lr <= 0.1", "ab"),
        ("lr = 10", "c"),
        ("lr == 1e-1", "b"),
        ("lr != 0.1", "acd"),
        ("algorithm.lr = auto", "d"),
        ("x.deep.lr = 9", "a"),
        ("lr > 0.01, verdict = fail", "c"),
        ("lr > 0.01 and seed = 2 and pass", "ab"),
        ("accuracy > 85%", "abc"),
        ("sent >= 2MB", "abc"),
        ("sent > 2MB", ""),
        ("latency < 100ms", "a"),
        ("latency = 1000ms", "b"),
        ("latency > 10Mbit", ""),
        ("loss = 0.05", ""),
        ("default.loss = 0.05", "c"),
        ("links.default.rate > 5Mbit", "d"),
        ("rate = 10Mbit", "d"),
        ("default.rate < 5Mbit", ""),
        ("started > 2026-11-20", "bc"),
        ("started >= 2026-11-20", "abcd"),
        ("date < 2026-11-21", "ad"),
        ("started <= 2026-11-21", "abd"),
        ("tag = base", "b"),
        ("tags = 'slow uplinks'", "b"),
        ("tag ~ uplink", "b"),
        ("tag != base", "acd"),
        ('place ~ "B"', "b"),
        ("FAIL", "c"),
        ("small pass", "ab"),
    ],
)
def test_a_filter_chooses_by_numbers_units_dates_and_words(text: str, places: str) -> None:
    assert "".join(each.place for each in Filter.parse(text).chosen(ROWS)) == places


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("loss = 5%", "loss is the test loss; did you mean links.default.loss?"),
        ("loss = 6%", "loss is the test loss; did you mean links.default.loss?"),
        ("accuracy > 2", ""),
        ("default.loss = 6%", ""),
        ("seed = 2", ""),
    ],
)
def test_where_nothing_is_found_the_key_behind_a_column_is_named(text: str, hint: str) -> None:
    assert select(ROWS, ListRequest(text)).hint == hint


@pytest.mark.parametrize("text", ["lr >", "> 3", "lr = 1 <", "= =", "lr > > 2"])
def test_what_is_no_filter_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError, match=r"can't be read from .* on; write conditions and words, like lr > 0\.1"):
        Filter.parse(text)


def test_a_key_that_no_run_has_is_named() -> None:
    with pytest.raises(InputError, match=r"no run here has a key 'rho'; columns are started, .*, or as lr"):
        Filter.parse("rho = 1").chosen(ROWS)
    assert Filter.parse("rho = 1").chosen([]) == []


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("algoritm.lr", "algorithm.lr"),
        ("Algorithm.LR", "algorithm.lr"),
        ("links.default.latncy", "links.default.latency"),
        ("links.default.rte", "links.default.rate"),
        ("latncy", "latency"),
        ("learning_rate", "lr"),
        ("acuracy", "accuracy"),
        ("verdct", "verdict"),
    ],
)
def test_a_misspelled_key_is_told_with_the_one_that_is_meant(written: str, meant: str) -> None:
    said = f"^no run here has a key {written!r}; did you mean {meant!r}\\?$"
    with pytest.raises(InputError, match=said):
        Filter.parse(f"{written} > 0.1").chosen(ROWS)
    for asked in (ListRequest(sort=written), ListRequest(by=written)):
        with pytest.raises(InputError, match=said):
            select(ROWS, asked)


def test_the_end_of_a_key_stands_for_one_that_differs_then_for_the_shallowest() -> None:
    def whole(name: str, *keys: dict[str, str]) -> str:
        return Names([row("x", each) for each in keys]).whole(name)

    assert whole("lr", {"a.lr": "1", "b.c.lr": "1"}) == "a.lr"
    assert whole("lr", {"a.lr": "1", "b.c.lr": "1"}, {"a.lr": "1", "b.c.lr": "2"}) == "b.c.lr"
    assert whole("c.lr", {"a.lr": "1", "b.c.lr": "1"}) == "b.c.lr"
    assert whole("seed", {"a.seed": "1"}) == "seed"
    with pytest.raises(InputError, match=r"'lr' may be a\.lr or b\.lr; write more of it"):
        whole("lr", {"a.lr": "1", "b.lr": "1"})
    with pytest.raises(InputError, match="no run here has a key 'r'"):
        whole("r", {"a.lr": "1"})


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0.1", Number(0.1)),
        ("-3", Number(-3.0)),
        ("5%", Number(0.05)),
        ("20ms", Number(0.02, "s")),
        ("2min", Number(120.0, "s")),
        ("10Mbit", Number(1e7, "bps")),
        ("256KiB", Number(262144.0, "B")),
        ("auto", None),
        ("", None),
        ("1 2", None),
        ("nan", None),
    ],
)
def test_numbers_are_read_in_base_units(text: str, number: Number | None) -> None:
    assert as_number(text) == number


def test_rows_are_in_the_order_of_a_key_and_those_without_it_come_last() -> None:
    def places(sort: str, down: bool) -> str:
        return "".join(each.place for each in select(ROWS, ListRequest(sort=sort, down=down)).rows)

    assert places("lr", False) == "abcd"  # a text stands behind the numbers
    assert places("lr", True) == "dcba"
    assert places("latency", False) == "abcd"
    assert places("latency", True) == "bacd"
    assert places("started", True) == "cbda"


def test_groups_have_the_mean_of_those_that_have_the_figure() -> None:
    found = select(ROWS, ListRequest(by="verdict"))
    passed, failed = sorted(found.groups(), key=lambda group: group.value, reverse=True)
    assert (passed.value, len(passed.rows), failed.value, len(failed.rows)) == ("pass", 3, "fail", 1)
    assert passed.mean("accuracy") == pytest.approx(0.9)  # d has none
    assert passed.mean("loss") is None
    assert passed.verdicts == {"pass": 3}
    by_lr = [group.value for group in select(ROWS, ListRequest(by="lr")).groups()]
    assert by_lr == ["0.05", "0.1", "1e1", "auto"]
    tags = {group.value: len(group.rows) for group in select(ROWS, ListRequest(by="tag")).groups()}
    assert tags == {"base": 1, "slow uplinks": 1, "–": 3}


def test_the_archive_is_left_out_unless_it_is_asked_for() -> None:
    rows = [A, row("e", {"gone": "1"}, labels=Labels(archived=True))]
    found = select(rows, ListRequest())
    assert ([each.place for each in found.rows], found.total, found.num_archived) == (["a"], 2, 1)
    found = select(rows, ListRequest(archived=True))
    assert ({each.place for each in found.rows}, found.num_archived) == ({"a", "e"}, 0)
