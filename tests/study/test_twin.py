"""The twin of a fleet: a fit of a simulated run with a known network gives that network, within its intervals."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netdfl.cli.data import RateOf
from netdfl.cli.data import fit as show_fit
from netdfl.core.errors import InputError
from netdfl.record.run import open_run
from netdfl.running.run import run
from netdfl.scenario.load import load, loads
from netdfl.study.twin.fitting import fit
from netdfl.study.twin.samples import RecordedTimes, read_samples
from netdfl.study.twin.twin import Twin, make_twin, pace, write_twin

MS = 1e-3
KNOWN: dict[str, Any] = {
    "schema": "netdfl/1",
    "name": "known",
    "nodes": 6,
    "rounds": 20,
    "world": {"kind": "simulated", "compute": {"kind": "lognormal", "mean": "40ms", "jitter": "4ms"}},
    "task": {"kind": "sized", "bytes": "200kB"},
    "algorithm": "dpsgd",
    "topology": {"kind": "grid", "rows": 2},
    "delivery": "acknowledged",
    "wait": {"for": "all", "deadline": "none"},
    "links": {"default": {"latency": {"dist": "lognormal", "mean": "15ms", "jitter": "2ms"}, "uplink": "20Mbit"}},
}
MEDIAN = 15 / sqrt(1 + (2 / 15) ** 2) * MS
"""The median of the latency, which least absolute deviations find."""


def ran(folder: Path, **change: object) -> Path:
    return run(load(KNOWN | change), out=folder / "run", page=False).path


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    links = {"default": KNOWN["links"]["default"], "2": {"uplink": "5Mbit"}}
    return ran(tmp_path_factory.mktemp("known"), links=links)


@pytest.fixture(scope="module")
def twin(known: Path) -> Twin:
    return make_twin(known)


def test_the_truth_is_within_the_intervals(twin: Twin) -> None:
    found = twin.fit
    assert found.told_apart
    assert found.shared == "uplink"
    assert found.clearly
    assert found.whole.latency_s.holds(MEDIAN)
    assert found.whole.rate_bps is not None
    assert found.whole.rate_bps.holds(20e6)
    assert found.whole.rate_bps.high - found.whole.rate_bps.low < 2e6
    assert found.compute_s.holds(40 * MS)
    assert found.jitter_s == pytest.approx(4 * MS, rel=0.2)
    assert list(found.by_node) == [2], "the one node whose uplink is slow, and no other"
    slow = found.by_node[2].rate_bps
    assert slow is not None
    assert slow.holds(5e6)


def test_links_with_rates_of_their_own_are_told_from_uplinks(tmp_path: Path) -> None:
    found = make_twin(ran(tmp_path, links={"default": {"latency": "15ms", "rate": "20Mbit"}})).fit
    assert (found.shared, found.clearly) == ("link", True)
    assert found.whole.rate_bps is not None
    assert found.whole.rate_bps.holds(20e6)
    assert found.whole.latency_s.holds(15 * MS)
    assert found.by_node == {}


def test_where_all_send_to_as_many_both_readings_fit_and_a_note_says_so(tmp_path: Path) -> None:
    links = {"default": {"latency": "15ms", "uplink": "20Mbit"}}
    path = ran(tmp_path, links=links, topology="ring")
    twin = make_twin(path)
    assert (twin.fit.shared, twin.fit.clearly) == ("uplink", False)
    assert twin.fit.whole.rate_bps is not None
    assert twin.fit.whole.rate_bps.holds(20e6)
    assert any("--rate-of link takes the other" in note for note in twin.notes)
    other = make_twin(path, reading="link").fit
    assert other.whole.rate_bps is not None
    assert other.whole.rate_bps.value == pytest.approx(10e6, rel=0.01), "half of the uplink for each of two"


def test_messages_of_one_size_take_the_latency_that_is_given(tmp_path: Path) -> None:
    links = {"default": {"latency": "15ms", "uplink": "20Mbit"}}
    path = ran(tmp_path, links=links, delivery="plain", topology="ring")
    twin = make_twin(path, 15 * MS)
    assert not twin.fit.told_apart
    assert twin.fit.whole.rate_bps is not None
    assert twin.fit.whole.rate_bps.holds(20e6)
    assert any("15 ms is taken, --latency gives another one" in note for note in twin.notes)


def test_the_twin_takes_as_long_as_the_fleet_and_a_slower_one_longer(known: Path, twin: Twin) -> None:
    there = open_run(known).result["virtual_duration_s"]
    again = run(load(pace(twin)), out=known.parent / "again", page=False).result["virtual_duration_s"]
    assert again == pytest.approx(there, rel=0.02)
    half = run(load(pace(twin, 0.5)), out=known.parent / "half", page=False).result["virtual_duration_s"]
    assert half == pytest.approx(2 * there, rel=0.2)
    fast, slow = (load(pace(twin, end=end)).world.model_dump()["compute"] for end in (1, -1))
    assert fast["mean"] < slow["mean"]


def test_a_twin_is_a_scenario_that_loads_and_no_file_is_written_over(twin: Twin, tmp_path: Path) -> None:
    file = tmp_path / "twin.yaml"
    write_twin(twin, file)
    found = loads(file.read_text())
    assert (found.name, found.world.kind, found.nodes) == ("known-twin", "simulated", 6)
    assert found.links.keys() == {"default", "2", "2->*"}
    with pytest.raises(InputError, match="is there already; name another file"):
        write_twin(twin, file)


def test_the_command_prints_figures_with_intervals_and_writes_the_twin(
    known: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_fit(known, out=tmp_path / "twin.yaml", latency="5ms", rate_of=RateOf.UPLINK)
    told = capsys.readouterr().out
    for what in ("latency, all nodes", "uplink, all nodes", "uplink, node 2", "compute, a round", " to ", "Mbit/s"):
        assert what in told
    assert (tmp_path / "twin.yaml").is_file()
    with pytest.raises(InputError, match=r"--latency: '5' is not a time"):
        show_fit(known, latency="5")


def test_too_few_messages_or_only_some_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a fit needs at least 8 of each"):
        make_twin(ran(tmp_path / "a", nodes=2, rounds=1, topology="line"))
    with pytest.raises(InputError, match="recorded only some messages"):
        make_twin(ran(tmp_path / "b", record={"messages": "every 10th"}))


def test_of_one_round_messages_are_drawn_and_a_note_says_so(tmp_path: Path) -> None:
    """Drawing the only round again and again gave intervals of no width."""
    twin = make_twin(ran(tmp_path, rounds=1, nodes=8, topology="full"))
    assert twin.fit.rounds == 1
    assert twin.fit.whole.rate_bps is not None
    assert twin.fit.whole.rate_bps.high - twin.fit.whole.rate_bps.low > 1e4
    assert twin.fit.compute_s.high - twin.fit.compute_s.low > 0.5 * MS
    assert any("all messages are of one round" in note for note in twin.notes)


def test_a_note_says_that_the_twin_has_no_core_links(twin: Twin, tmp_path: Path) -> None:
    underlay = {"links": {"a--b": {"rate": "10Mbit"}}, "place": {"0..2": "a", "3..5": "b"}}
    placed = make_twin(ran(tmp_path, rounds=4, underlay=underlay))
    assert "underlay" not in placed.document
    assert placed.fit.rounds == 4
    assert any("the twin has no core links" in note for note in placed.notes)
    assert not any("core links" in note or "one round" in note for note in twin.notes)


def test_a_note_names_a_link_that_its_senders_fit_does_not_hold(twin: Twin, tmp_path: Path) -> None:
    """Most of a slow link's messages are sent while it alone is busy, and are left out of the fit."""
    links = {"default": {"latency": "20ms", "rate": "10Mbit"}, "0->1": {"latency": "80ms", "rate": "1Mbit"}}
    odd = make_twin(ran(tmp_path, links=links, nodes=4, rounds=10, topology="ring", delivery="plain"))
    (note,) = [note for note in odd.notes if "is fitted to their sender" in note]
    assert "sender: 0->1 " in note
    assert 'links: {"0->1": {latency: TIME, rate: RATE}}' in note
    assert not any("is fitted to their sender" in note for note in twin.notes)


def samples(**change: Any) -> RecordedTimes:
    """Messages over a link of 10 ms and 8 Mbit/s, a microsecond a byte; four nodes compute for 20 ms a round."""
    count = 40
    size = np.tile([1e3, 1e5], count // 2)
    whole = np.ones(count)
    node, number = np.arange(count) % 4, np.arange(count) // 4
    found = RecordedTimes(
        node, (node + 1) % 4, number, size, size, 10 * MS + size * 1e-6, whole, node, number, 20 * MS * whole
    )
    return replace(found, **change)


def test_late_messages_do_not_move_the_fit() -> None:
    late = samples().delay.copy()
    late[[5, 14, 23]] += 3.0
    found = fit(samples(delay=late)).whole
    assert found.latency_s.value == pytest.approx(10 * MS, rel=1e-3)
    assert found.rate_bps is not None
    assert found.rate_bps.value == pytest.approx(8e6, rel=1e-3)


def test_delays_without_a_trace_of_size_have_no_rate() -> None:
    assert fit(samples(delay=np.full(40, 10 * MS))).whole.rate_bps is None


def test_the_rounding_of_delays_is_no_rate_and_no_time_is_below_0() -> None:
    """One node's rounding had a slope, and so a rate of 8e6 Mbit/s that set the node apart."""
    rounding = np.where(samples().src == 3, 1e-15 * samples().own, 0.0)
    found = fit(samples(delay=5 * MS + rounding))
    assert (found.whole.rate_bps, found.by_node) == (None, {})
    assert fit(samples(delay=samples().own * 1e-6)).whole.latency_s.low == 0.0


def test_a_message_behind_another_counts_its_bytes_alone() -> None:
    behind = np.where(np.arange(40) % 8 == 1, 0.0, 1.0)
    delay = samples().delay - 10 * MS * (1 - behind)
    found = fit(samples(latent=behind, delay=delay)).whole
    assert found.latency_s.value == pytest.approx(10 * MS, rel=1e-6)


def test_a_slow_node_is_named_with_its_factor() -> None:
    busy = samples().busy.copy()
    busy[samples().busy_node == 3] *= 4
    found = fit(samples(busy=busy))
    assert found.slow == {3: pytest.approx(4.0)}
    assert found.compute_s.value == pytest.approx(20 * MS)


def test_what_is_sent_while_its_link_is_busy_begins_at_the_arrival_before(known: Path) -> None:
    found = read_samples(open_run(known))
    behind = (found.src == 2) & (found.latent == 0)
    assert behind.sum() > 20, "the slow uplink is busy when the next round begins"
    assert np.median(found.delay[behind] * 5e6 / 8) == pytest.approx(np.median(found.shared[behind]), rel=0.02)
