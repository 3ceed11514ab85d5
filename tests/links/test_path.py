"""Paths: exact timing, fusion against the chain, changes, and shared stages."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from driving import LinkRun
from hypothesis import given, settings
from hypothesis import strategies as st

from netdfl.core.types import Kind
from netdfl.links.path import Path, fuse
from netdfl.links.rules.base import Stage, Transit
from netdfl.links.rules.disorder import Checksum, Corrupt, Duplicate, Reorder, corrupt, duplicate, reorder
from netdfl.links.rules.latency import Delay, Latency, constant, exponential, lognormal
from netdfl.links.rules.loss import Bernoulli, DropList, GilbertElliott, Loss, Match
from netdfl.links.rules.named import NamedDelay, NamedMessages
from netdfl.links.rules.rate import Rate, serial
from netdfl.links.rules.state import LinkState
from netdfl.links.rules.tcp import Tcp, default_table

MS = 10**6
MB = 10**6


@dataclass
class Log:
    """Runs units and keeps what became of them."""

    def __post_init__(self) -> None:
        self.drive = LinkRun(1)

    def change(self, path: Path, now_ns: int, **changes: object) -> None:
        self.drive.engine.run(now_ns - 1)
        self.drive.engine.change(path.changed(changes, now_ns), now_ns)

    def finish(self) -> list[tuple[int, str, int, int, int]]:
        ends = self.drive.finish()
        return sorted((at, why or "arrived", u.src, u.round, u.copy) for at, u, why in ends)


def unit(round: int = 0, nbytes: int = MB, src: int = 0, dst: int = 9) -> Transit:
    return Transit(src, dst, Kind.DATA, round, 0, 0, nbytes)


@pytest.mark.parametrize("fused", [False, True])
def test_three_messages_at_once_arrive_one_after_another(fused):
    stages = [Rate(serial(rate=8e6)), Latency(0, constant(delay=50 * MS))]
    path, log = Path((0, 9), fuse(stages) if fused else stages), Log()
    for t in range(3):
        log.drive.enter(path, unit(t), 0)
    assert [at for at, *_ in log.finish()] == [1050 * MS, 2050 * MS, 3050 * MS]


def test_a_downlink_serves_its_links_in_order_of_arrival():
    downlink, log = Rate(serial(rate=8e6)), Log()
    a = Path((0, 9), fuse([Latency(0, constant(delay=100 * MS))]), downlink=downlink)
    b = Path((1, 9), fuse([Latency(0, constant(delay=10 * MS))]), downlink=downlink)
    log.drive.submit(a, unit(src=0), 0)
    log.drive.submit(b, unit(src=1), 10 * MS)
    assert [(at, src) for at, _, src, *_ in log.finish()] == [(1020 * MS, 1), (2020 * MS, 0)]


def test_an_uplink_is_shared_by_the_links_of_its_node():
    uplink, log = Rate(serial(rate=8e6)), Log()
    for dst in (1, 2):
        log.drive.enter(Path((0, dst), (), uplink=uplink), unit(dst, dst=dst), 0)
    assert [at for at, *_ in log.finish()] == [1000 * MS, 2000 * MS]


@dataclass
class Recipe:
    """One link, built afresh for the fused and for the chained run."""

    loss: float
    bursty: bool
    copies: float
    damage: float
    rate: float
    queue: int | None
    delay: Delay
    late: float

    def stages(self) -> tuple[list[Stage], Checksum]:
        model = GilbertElliott(2, p=self.loss, r=0.4) if self.bursty else Bernoulli(2, probability=self.loss)
        damage = Corrupt(4, corrupt(probability=self.damage))
        own: list[Stage] = [
            LinkState(),
            Loss(model),
            Duplicate(3, duplicate(probability=self.copies)),
            damage,
            Rate(serial(rate=self.rate, queue=self.queue)),
            Latency(5, self.delay),
            Reorder(6, reorder(probability=self.late, delay=3 * MS)),
        ]
        return own, Checksum(damage)


probability = st.sampled_from([0.0, 0.2, 0.5])
recipes = st.builds(
    Recipe,
    loss=probability,
    bursty=st.booleans(),
    copies=probability,
    damage=probability,
    rate=st.sampled_from([1e5, 3e6, 7.7e6]),
    queue=st.sampled_from([None, 1000, 5000]),
    delay=st.sampled_from(
        [constant(delay=5 * MS), lognormal(mean=5 * MS, jitter=4 * MS), exponential(mean=2 * MS, order="free")]
    ),
    late=probability,
)
changes = st.one_of(
    st.sampled_from(["up", "down_drop", "down_hold"]).map(lambda state: {"state": state}),
    st.sampled_from([0.0, 0.9]).map(lambda p: {"loss": Bernoulli(7, probability=p)}),
)
steps = st.tuples(st.integers(1, 3 * MS), st.one_of(st.integers(10, 3000), changes))


@settings(max_examples=150, deadline=None)
@given(recipe=recipes, script=st.lists(steps, max_size=40))
def test_a_fused_link_is_the_chain(recipe, script):
    results = []
    for fused in (False, True):
        own, last = recipe.stages()
        path, log, now = Path((0, 9), fuse(own) if fused else own, last=(last,)), Log(), 0
        for t, (gap, step) in enumerate([*script, (1, {"state": "up"})]):
            now += gap
            if isinstance(step, int):
                log.drive.engine.run(now)
                log.drive.enter(path, unit(t, step), now)
            else:
                log.change(path, now, **step)
        results.append(log.finish())
    chained, fused_ = results
    # A chain sees a full queue, and a detected corruption, at the same time as the fused link does.
    assert fused_ == chained


@settings(max_examples=60, deadline=None)
@given(
    script=st.lists(
        st.tuples(st.integers(0, MS), st.sampled_from(["send", "up", "down_hold", "slow", "fast", "stop"])), max_size=50
    )
)
def test_holding_loses_nothing_whatever_else_changes(script):
    own = [LinkState(), Rate(serial(rate=8e6)), Latency(0, lognormal(mean=5 * MS, jitter=4 * MS))]
    path, log, now, sent = Path((0, 9), own), Log(), 0, []
    for t, (gap, step) in enumerate([*script, (1, "up"), (0, "fast")]):
        now += gap
        if step == "send":
            log.drive.engine.run(now)
            log.drive.enter(path, unit(t, 1000), now)
            sent.append((now, t))
        elif step in ("up", "down_hold"):
            log.change(path, now, state=step)
        else:
            log.change(path, now, rate=serial(rate={"slow": 1e5, "fast": 1e9, "stop": 0.0}[step]))
    fates = log.finish()
    assert sorted(t for _, why, _, t, _ in fates if why == "arrived") == [t for _, t in sent]
    assert len(fates) == len(sent)
    arrivals = {t: at for at, _, _, t, _ in fates}
    assert [arrivals[t] for _, t in sent] == sorted(arrivals.values())
    assert all(arrivals[t] > at for at, t in sent)


def test_a_reset_drops_all_that_the_link_holds_and_nothing_else():
    uplink = Rate(serial(rate=8e6))
    own = [LinkState(), Rate(serial(rate=8e6)), Latency(0, constant(delay=1500 * MS))]
    path, log = Path((0, 9), own, uplink=uplink), Log()
    for t in range(5):
        log.drive.enter(path, unit(t), 0)
    log.change(path, 3500 * MS, state="down_reset")
    log.change(path, 4500 * MS, state="up")
    assert log.finish() == [
        (3500 * MS, "arrived", 0, 0, 0),
        (3500 * MS, "reset", 0, 1, 0),
        (3500 * MS, "reset", 0, 2, 0),
        (4000 * MS, "down", 0, 3, 0),
        (7500 * MS, "arrived", 0, 4, 0),
    ]


def test_detected_corruption_takes_the_wire_and_ends_at_the_receiver():
    damage = Corrupt(0, corrupt(probability=1.0))
    path, log = Path((0, 9), [damage, Rate(serial(rate=8e6))], last=(Checksum(damage),)), Log()
    log.drive.enter(path, unit(), 0)
    assert log.finish() == [(1000 * MS, "corrupt", 0, 0, 0)]
    damage = Corrupt(0, corrupt(probability=1.0, mode="deliver"))
    drive = LinkRun()
    drive.enter(Path((0, 9), [damage], last=(Checksum(damage),)), unit(), 0)
    ((_, seen, reason),) = drive.finish()
    assert (seen.corrupted, reason) == (True, None)


SOME_STAGES = {
    "bernoulli": lambda: Loss(Bernoulli(3, probability=0.3)),
    "bursts": lambda: Loss(GilbertElliott(3, p=0.3, r=0.3)),
    "listed": lambda: Loss(DropList(3, messages=[Match(2), Match(5)])),
    "rate": lambda: Rate(serial(rate=8e6)),
    "bucket": lambda: Rate(serial(rate=8e6, burst=2 * MB)),
    "bounded": lambda: Rate(serial(rate=8e6, queue=2 * MB)),
    "held": lambda: Rate(serial(rate=0)),
    "constant": lambda: Latency(4, constant(delay=700 * MS)),
    "varying": lambda: Latency(4, lognormal(mean=700 * MS, jitter=400 * MS)),
    "unordered": lambda: Latency(4, lognormal(mean=700 * MS, jitter=400 * MS, order="free")),
    "reorder": lambda: Reorder(5, reorder(probability=0.5, delay=900 * MS)),
    "named": lambda: NamedDelay([NamedMessages(until_round=5, by_ns=900 * MS)]),
    "tcp": lambda: Tcp(6, default_table(), None, serial(rate=8e6), constant(delay=20 * MS)),
}
NEVER_REST = ("bursts", "held")
sends = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 9)), min_size=1, max_size=8)


def advanced(stage: Stage, sent: list[tuple[int, int]], after: int = 0) -> list[int]:
    return [stage.advance(unit(round), after + at * MS) for at, round in sorted(sent)]


@pytest.mark.parametrize("kind", SOME_STAGES)
@given(before=sends, after=sends)
def test_a_stage_that_rests_does_what_one_made_anew_does(kind, before, after):
    stage = SOME_STAGES[kind]()
    advanced(stage, before)
    ends = [at for at in range(0, 20_000 * MS, 50 * MS) if stage.rests(at)][:1]
    assert bool(ends) == (kind not in NEVER_REST)
    for end in ends:
        later = max(end, 2000 * MS)
        assert stage.rests(later)
        assert advanced(stage, after, later) == advanced(SOME_STAGES[kind](), after, later)


@pytest.mark.parametrize("kind", SOME_STAGES)
def test_stages_rest_once_all_has_left_but_for_those_that_remember(kind):
    stage = SOME_STAGES[kind]()
    advanced(stage, [(0, 0), (1, 1)])
    assert stage.rests(3600 * 1000 * MS) == (kind not in NEVER_REST)
    assert not stage.rests(2 * MS) or kind in ("bernoulli", "listed", "unordered", "reorder")


def test_a_stage_that_can_take_back_what_it_let_go_rests_once_that_has_left():
    stage = Latency(4, lognormal(mean=700 * MS, jitter=400 * MS, order="free"))
    (departure,) = stage.enter(unit(), 0)
    assert not stage.rests(departure.at_ns - 1)
    assert stage.rests(departure.at_ns)
