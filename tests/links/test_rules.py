"""Rules one by one: what each loses, delays, serializes, holds."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path as FilePath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdfl.core.types import Kind
from netdfl.links.rules.base import Departure, Drop, Hold, LinkEvent, Transit
from netdfl.links.rules.disorder import Corrupt, Duplicate, Reorder, corrupt, duplicate, reorder
from netdfl.links.rules.latency import LATENCIES, Latency, constant, empirical, lognormal, normal, uniform
from netdfl.links.rules.loss import Bernoulli, DropList, GilbertElliott, Loss, Match, Trace
from netdfl.links.rules.mahimahi import Opportunities, TraceRate, mahimahi
from netdfl.links.rules.rate import MessageLimit, Rate, serial
from netdfl.links.rules.state import LinkState

MS = 10**6
SETTINGS = settings(max_examples=60, deadline=None)


def unit(round: int = 0, nbytes: int = 100, kind: Kind = Kind.DATA, step: int = 0, attempt: int = 0) -> Transit:
    return Transit(0, 1, kind, round, step, attempt, nbytes)


def leaves(stage, item, now):
    (outcome,) = stage.enter(item, now)
    assert isinstance(outcome, Departure)
    return outcome.at_ns


def set_(**changes) -> LinkEvent:
    return changes


def test_bernoulli_is_keyed_by_the_unit_alone():
    forward = [Bernoulli(5, probability=0.3).lost(unit(t)) for t in range(300)]
    backward = [Bernoulli(5, probability=0.3).lost(unit(t)) for t in reversed(range(300))]
    assert forward == backward[::-1]
    assert abs(sum(forward) / 300 - 0.3) < 3 * math.sqrt(0.21 / 300)
    assert forward != [Bernoulli(6, probability=0.3).lost(unit(t)) for t in range(300)]
    assert not any(Bernoulli(1, probability=0.0).lost(unit(t)) for t in range(1000))
    assert all(Bernoulli(1, probability=1.0).lost(unit(t)) for t in range(1000))


@pytest.mark.parametrize(("p", "r", "good", "bad"), [(0.02, 0.3, 0, 1), (0.1, 0.4, 0.01, 0.6), (0.5, 0.9, 0, 1)])
def test_gilbert_elliott_loss_and_burst_are_those_of_the_formula(p, r, good, bad):
    chain = GilbertElliott(11, p=p, r=r, loss_good=good, loss_bad=bad)
    n = 60_000
    lost = [chain.lost(unit(t)) for t in range(n)]
    correlation = 1 - p - r
    pi = p / (p + r)
    between = (bad - good) ** 2 * pi * (1 - pi)
    loss = chain.stationary_loss
    variance = loss * (1 - loss) + 2 * between * correlation / (1 - correlation)
    assert abs(sum(lost) / n - loss) < 3 * math.sqrt(variance / n)
    bursts, run = [], 0
    for each in [*lost, False]:
        if each:
            run += 1
        elif run:
            bursts.append(run)
            run = 0
    mean = sum(bursts) / len(bursts)
    spread = math.sqrt(sum((b - mean) ** 2 for b in bursts) / (len(bursts) - 1))
    assert abs(mean - chain.mean_burst) < 3 * spread / math.sqrt(len(bursts))


def test_gilbert_elliott_mean_burst_of_the_simple_model_is_one_over_r():
    assert GilbertElliott(0, p=0.01, r=0.25).mean_burst == pytest.approx(4.0)
    assert GilbertElliott(0, p=0.01, r=0.25).stationary_loss == pytest.approx(0.01 / 0.26)


def test_acknowledgements_and_duplicates_leave_the_data_chain_alone():
    alone = GilbertElliott(3, p=0.2, r=0.3)
    mixed = GilbertElliott(3, p=0.2, r=0.3)
    expected = [alone.lost(unit(t)) for t in range(500)]
    got = []
    for t in range(500):
        got.append(mixed.lost(unit(t)))
        mixed.lost(unit(t, kind=Kind.ACK))
        copy = unit(t)
        copy.copy = 1
        assert mixed.lost(copy) == got[-1]
    assert got == expected


def test_drop_lists_are_exact():
    stage = Loss(DropList(0, messages=[Match(3), Match(5, step=1, kind=Kind.DATA, attempt=0)]))
    units = [unit(t, kind=k, step=s, attempt=a) for t in range(8) for k in Kind for s in range(2) for a in range(2)]
    for each in units:
        listed = each.of_round == 3 or (each.round, each.step, each.kind, each.attempt) == (5, 1, Kind.DATA, 0)
        assert isinstance(stage.enter(each, 0)[0], Drop) == listed


def test_loss_trace_is_cyclic_and_counts_data_apart(tmp_path):
    file = tmp_path / "trace"
    file.write_text("0 1,0\n1")
    trace = Trace(0, file=str(file))
    fates = []
    for t in range(8):
        fates.append(trace.lost(unit(t)))
        trace.lost(unit(t, kind=Kind.NOTICE))
    assert fates == [False, True, False, True] * 2


@pytest.mark.parametrize(
    "build",
    [
        lambda: GilbertElliott(0, p=0.0, r=0.0),
        lambda: DropList(0, messages=[]),
        lambda: Trace(0, losses=[]),
        lambda: Trace(0, losses=[0, 2]),
        lambda: Trace(0),
        lambda: uniform(low=5, high=1),
        lambda: lognormal(mean=0, jitter=1),
        lambda: Opportunities(()),
        lambda: Opportunities((5, 3)),
        lambda: reorder(probability=0.1, delay=0),
    ],
)
def test_parameters_out_of_range_are_refused(build):
    with pytest.raises(ValueError, match=r"expected|give|choose|exchange|correct|write|list at least"):
        build()


DISTRIBUTIONS = {
    "constant": {"delay": 20 * MS},
    "uniform": {"low": 10 * MS, "high": 30 * MS},
    "normal": {"mean": 20 * MS, "jitter": 3 * MS},
    "lognormal": {"mean": 20 * MS, "jitter": 5 * MS},
    "exponential": {"mean": 20 * MS},
    "pareto": {"minimum": 10 * MS, "shape": 4.0},
}
MOMENTS = {
    "uniform": (20, 20 / math.sqrt(12)),
    "normal": (20, 3),
    "lognormal": (20, 5),
    "exponential": (20, 20),
    "pareto": (40 / 3, math.sqrt(200 / 9)),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_delays_have_the_mean_and_jitter_they_promise(name):
    delay = LATENCIES[name](**DISTRIBUTIONS[name])
    n = 20_000
    draws = [delay.quantile((i + 0.5) / n) / MS for i in range(n)]
    mean = sum(draws) / n
    std = math.sqrt(sum((d - mean) ** 2 for d in draws) / n)
    assert (mean, std) == (pytest.approx(MOMENTS[name][0], rel=0.01), pytest.approx(MOMENTS[name][1], rel=0.05))


def test_normal_is_truncated_at_zero():
    quantile = normal(mean=1 * MS, jitter=5 * MS).quantile
    assert quantile is not None
    assert 0 <= quantile(1e-12) < quantile(0.5)


@pytest.mark.parametrize(("text", "expected"), [("20ms\n30ms\n", (20, 30)), ("delay_ms,note\n20,a\n30,b\n", (20, 30))])
def test_empirical_delays_come_from_the_file(tmp_path, text, expected):
    file = tmp_path / "delays.csv"
    file.write_text(text)
    quantile = empirical(file=str(file)).quantile
    assert quantile is not None
    assert {quantile(0.2) / MS, quantile(0.9) / MS} == set(expected)


@pytest.mark.parametrize("text", ["", "20\n", "delay_ms\n-4\n", "delay_ms\nx\n"])
def test_bad_delay_files_are_refused(tmp_path, text):
    file = tmp_path / "delays.csv"
    file.write_text(text)
    with pytest.raises(ValueError, match="delays in"):
        empirical(file=str(file))


@SETTINGS
@given(
    name=st.sampled_from(sorted(DISTRIBUTIONS)),
    order=st.sampled_from(["fifo", "free"]),
    gaps=st.lists(st.integers(0, 20 * MS), min_size=1, max_size=40),
    seed=st.integers(0, 2**64 - 1),
)
def test_arrival_is_never_before_departure_and_fifo_where_promised(name, order, gaps, seed):
    options = {} if name == "constant" else {"order": order}
    stage = Latency(seed, LATENCIES[name](**DISTRIBUTIONS[name], **options))
    now, last = 0, 0
    for t, gap in enumerate(gaps):
        now += gap
        if t == len(gaps) // 2:
            assert not stage.changed(set_(latency=constant(delay=1)), now)
        at = leaves(stage, unit(t), now)
        assert at >= now
        if order == "fifo":
            assert at >= last
        last = max(at, last)


@SETTINGS
@given(
    rate=st.one_of(st.integers(1, 10**11).map(float), st.floats(1.0, 1e9)),
    burst=st.integers(0, 3000),
    traffic=st.lists(st.tuples(st.integers(0, 10**8), st.integers(1, 5000)), min_size=1, max_size=30),
)
def test_the_rate_is_never_exceeded_over_any_window(rate, burst, traffic):
    stage = Rate(serial(rate=rate, burst=burst))
    now, out = 0, []
    for t, (gap, nbytes) in enumerate(traffic):
        now += gap
        at = leaves(stage, unit(t, nbytes), now)
        assert at >= now
        out.append((at, nbytes))
    assert [at for at, _ in out] == sorted(at for at, _ in out)
    for i in range(len(out)):
        total = 0
        for j in range(i + 1, len(out)):
            total += out[j][1]
            assert total * 8 <= rate * (out[j][0] - out[i][0] + 1) / 1e9 * (1 + 1e-12) + burst * 8


@SETTINGS
@given(rate=st.integers(10**3, 10**10), sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=50))
def test_a_busy_serializer_loses_no_time_to_rounding(rate, sizes):
    stage = Rate(serial(rate=float(rate)))
    for t, nbytes in enumerate(sizes):
        at = leaves(stage, unit(t, nbytes), 0)
    assert at == -(-sum(sizes) * 8 * 10**9 // rate)


def test_queue_bounds_drop_the_tail_but_never_what_finds_the_link_idle():
    stage = Rate(serial(rate=8e6, queue=1500))
    fates = [type(stage.enter(unit(t, 1000), 0)[0]).__name__ for t in range(4)]
    assert fates == ["Departure", "Departure", "Drop", "Drop"]
    assert leaves(stage, unit(9, 10**6), 2 * MS) == 1002 * MS
    counted = Rate(serial(rate=8e6, queue=MessageLimit(2)))
    fates = [type(counted.enter(unit(t, 1000), 0)[0]).__name__ for t in range(5)]
    assert fates == ["Departure"] * 3 + ["Drop"] * 2


def test_a_new_rate_retimes_what_is_in_service_and_what_waits():
    stage = Rate(serial(rate=8e6))
    first, second = unit(0, 10**6), unit(1, 10**6)
    assert (leaves(stage, first, 0), leaves(stage, second, 0)) == (1000 * MS, 2000 * MS)
    moved = stage.changed(set_(rate=serial(rate=4e6)), 500 * MS)
    assert [(d.unit, d.at_ns) for d in moved] == [(first, 1500 * MS), (second, 3500 * MS)]
    held = stage.changed(set_(rate=serial(rate=0.0)), 1000 * MS)
    assert all(isinstance(o, Hold) for o in held)
    assert stage.enter(third := unit(2, 10**6), 1100 * MS) == ()
    moved = stage.changed(set_(rate=serial(rate=8e6)), 5000 * MS)
    assert [(d.unit, d.at_ns) for d in moved] == [(first, 5250 * MS), (second, 6250 * MS), (third, 7250 * MS)]
    dropped = stage.changed(set_(state="down_reset"), 5250 * MS)
    assert [(d.unit, d.reason) for d in dropped] == [(second, "reset"), (third, "reset")]
    assert leaves(stage, unit(3, 10**6), 6000 * MS) == 7000 * MS


@SETTINGS
@given(
    changes=st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 10**8)), max_size=6),
    sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=10),
)
def test_rate_changes_conserve_work(changes, sizes):
    stage = Rate(serial(rate=8e6))
    end = [leaves(stage, unit(t, nbytes), 0) for t, nbytes in enumerate(sizes)][-1]
    now, rate, bits = 0, 8_000_000, sum(sizes) * 8 * 10**9
    for gap, new in changes:
        if now + gap >= end:
            break
        now += gap
        bits -= gap * rate
        if new != rate:
            rate = new
            end = stage.changed(set_(rate=serial(rate=float(new))), now)[-1].at_ns
    assert abs(end - (now + -(-bits // rate))) <= 1


def test_mahimahi_opportunities_are_shared_wasted_and_repeated(tmp_path):
    file = tmp_path / "trace"
    file.write_text("1\n2\n2\n5\n")
    stage = TraceRate(mahimahi(file=str(file)))
    assert leaves(stage, unit(0, 1000), 0) == 1 * MS
    assert leaves(stage, unit(1, 1000), 0) == 2 * MS
    assert leaves(stage, unit(2, 1000), 0) == 2 * MS
    assert leaves(stage, unit(3, 1500), 3 * MS) == 5 * MS
    assert leaves(stage, unit(4, 1500 * 4), 6 * MS) == 10 * MS
    assert leaves(stage, unit(5, 1), 6 * MS) == 11 * MS


def test_a_cooked_trace_of_pensieves_gives_its_rates_and_its_silence(tmp_path):
    file = tmp_path / "cooked"
    file.write_text("10.0\t99\n10.5\t0.048\n11.5\t0.024\n14.0\t0\n")  # a rate holds until its own time
    found = mahimahi(file=str(file))
    assert found.at_ns == (250 * MS, 500 * MS, 1000 * MS, 1500 * MS)
    assert found.period_ns == 4000 * MS  # with the 2.5 s of silence at its end
    stage = TraceRate(found)
    assert leaves(stage, unit(0, 1500), 0) == 250 * MS
    assert leaves(stage, unit(1, 1500), 1600 * MS) == 4250 * MS
    assert leaves(stage, unit(2, 4500), 8000 * MS) == 9000 * MS
    assert [found.first(now * MS) for now in (0, 250, 251, 1501, 4000, 4250, 4251)] == [0, 0, 1, 4, 4, 4, 5]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0 1\n2 1\n1 1\n", "times do not ascend"),
        ("0 1\n1 -1\n", "a rate is no number of 0 or more"),
        ("0 1\n1 x\n", "could not convert"),
        ("0 1\n1 1e9\n", "more than 10,000,000 packets"),
        ("1\n2.5\n", "invalid literal"),
    ],
)
def test_a_trace_that_is_neither_is_refused_with_both_forms(tmp_path, text, said):
    (tmp_path / "t").write_text(text)
    forms = r"expected one whole number of ms on each line, or \(Pensieve's\) a time in s and a rate in Mbit/s"
    with pytest.raises(ValueError, match=rf"/t: .*{said}.*; {forms}"):
        mahimahi(file=str(tmp_path / "t"))


def test_duplicates_corruption_and_reordering_come_at_their_probability():
    copies = [len(Duplicate(1, duplicate(probability=0.2)).enter(unit(t), 0)) for t in range(2000)]
    assert abs(sum(copies) / 2000 - 1.2) < 3 * math.sqrt(0.16 / 2000)
    marked = [unit(t) for t in range(2000)]
    for each in marked:
        Corrupt(2, corrupt(probability=0.2)).enter(each, 0)
    assert abs(sum(u.corrupted for u in marked) / 2000 - 0.2) < 3 * math.sqrt(0.16 / 2000)
    stage = Reorder(3, reorder(probability=0.2, delay=7))
    late = [leaves(stage, unit(t), 0) for t in range(2000)]
    assert set(late) == {0, 7}
    assert abs(late.count(7) / 2000 - 0.2) < 3 * math.sqrt(0.16 / 2000)


@SETTINGS
@given(script=st.lists(st.sampled_from(["send", "up", "down_hold"]), max_size=60))
def test_down_hold_loses_nothing_and_keeps_order(script):
    stage, sent, left = LinkState(), [], []
    for now, step in enumerate([*script, "up"]):
        if step == "send":
            sent.append(each := unit(now))
            outcomes = stage.enter(each, now)
        else:
            outcomes = stage.changed(set_(state=step), now)
        for outcome in outcomes:
            assert isinstance(outcome, Departure)
            assert outcome.at_ns == now
            left.append(outcome.unit)
    assert left == sent


def test_down_drop_drops_what_enters_and_what_is_held():
    stage = LinkState("down_hold")
    assert not stage.enter(unit(0), 0)
    assert [o.reason for o in stage.changed(set_(state="down_drop"), 1)] == ["down"]
    assert [o.reason for o in stage.enter(unit(1), 2)] == ["down"]


_FATES = """
from netdfl.core.rng import Streams
from netdfl.core.types import Kind
from netdfl.links.rules.base import Transit
from netdfl.links.rules.latency import Latency, lognormal
from netdfl.links.rules.loss import GilbertElliott
seed = Streams(7).integer("link", 3, 5, "loss")
chain, late = GilbertElliott(seed, p=0.2, r=0.4), Latency(seed, lognormal(mean=10**7, jitter=10**6))
units = [Transit(3, 5, kind, t, 0, 0, 10) for t in range(50) for kind in Kind]
print([(chain.lost(u), late.advance(u, 0)) for u in units])
"""


def test_fates_are_the_same_in_every_process():
    def run(hash_seed: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", _FATES],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(FilePath(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    first = run("1")
    assert "True" in first
    assert run("2") == first
