"""The fidelity report: means per link, the bound, and links that nothing delayed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdfl.core.clock import RealClock
from netdfl.diagnosis.fidelity import EVENT, FEWEST, MOST_ERRORS, LinkTimes, Meter, judge_fidelity
from netdfl.record.run import Run
from netdfl.record.store import StoreWriter

MS = 1_000_000


def meter(errors_ms: list[int], delay_ms: int = 100, src: int = 0) -> Meter:
    found = Meter()
    for number, error in enumerate(errors_ms):
        sent = number * 1000 * MS
        found.arrived(src, 1000, sent, sent + delay_ms * MS, sent + (delay_ms + error) * MS)
    return found


def recorded(path: Path, meters: dict[int, Meter]) -> Run:
    for node, each in meters.items():
        with StoreWriter(path, f"{node:03d}") as store:
            store.event(0, node, 0, EVENT, **each.to_json())
    return Run(path)


def test_a_link_within_either_bound_is_true_and_one_past_both_is_missed_and_named(tmp_path):
    run = recorded(tmp_path, {1: meter([20, 30] * 8), 2: meter([10] * 16, src=1)})
    assert judge_fidelity(run, relative=0.25, slack_ns=0).missed == ""
    assert judge_fidelity(run, relative=0.0, slack_ns=25 * MS).missed == ""
    found = judge_fidelity(run, relative=0.2, slack_ns=5 * MS)
    assert "1 of 2 links" in found.missed
    assert "0->1 came 25.0 ms late or more, with 100.0 ms scheduled" in found.missed
    assert found.summary is not None
    assert (found.summary["links_judged"], found.summary["links_missed"]) == (2, 1)
    assert [(link["src"], link["dst"]) for link in found.summary["links"]] == [(0, 1), (1, 2)]
    assert set(found.summary["loop_lag_s"]) == {"1", "2"}


def test_a_few_late_messages_are_no_miss(tmp_path):
    run = recorded(tmp_path, {1: meter([0, 9000, 0, 9000, 0] * 4)})
    assert judge_fidelity(run, relative=0.0, slack_ns=MS).missed == ""


def test_a_link_of_a_few_messages_while_the_fleet_started_is_not_judged(tmp_path):
    run = recorded(tmp_path, {1: meter([9000] * (FEWEST - 1))})
    found = judge_fidelity(run, relative=0.0, slack_ns=MS)
    assert found.missed == ""
    assert found.summary is not None
    assert found.summary["links_judged"] == 0


def test_what_no_link_delayed_is_not_judged(tmp_path):
    found = Meter()
    found.arrived(0, 1000, 5 * MS, 5 * MS, 500 * MS)
    assert found.to_json()["links"] == {}
    result = judge_fidelity(recorded(tmp_path, {1: found}), relative=0.0, slack_ns=0)
    assert result.missed == ""


def test_a_run_without_emulated_links_has_no_fidelity(tmp_path):
    with StoreWriter(tmp_path, "000") as store:
        store.event(0, None, 0, "start")
    assert judge_fidelity(Run(tmp_path), relative=0.0, slack_ns=0) == (None, "")


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**9), st.integers(0, 10**9)), min_size=2))
def test_means_and_rates_are_those_of_the_messages(messages):
    times = LinkTimes()
    now = 0
    for nbytes, delay, error in messages:
        now += 10**9
        times.add(nbytes, now, now + delay, now + delay + error)
    found = times.to_json()
    count = len(messages)
    assert found["scheduled_delay_s"] == sum(delay for _, delay, _ in messages) / count / 1e9
    assert found["achieved_delay_s"] == sum(delay + error for _, delay, error in messages) / count / 1e9
    assert found["median_error_s"] == median(error for _, _, error in messages) / 1e9
    assert found["worst_error_s"] == max(error for _, _, error in messages) / 1e9
    due = [10**9 * (i + 1) + delay for i, (_, delay, _) in enumerate(messages)]
    bits = 8 * sum(nbytes for nbytes, _, _ in messages[1:])
    if max(due) > min(due):
        assert found["scheduled_rate_bps"] == bits * 10**9 / (max(due) - min(due))


def test_of_very_many_messages_some_errors_are_kept_and_the_worst():
    times, count = LinkTimes(), 10 * MOST_ERRORS
    for number in range(count):
        times.add(1, 0, 1, 1 + (10**9 if number == 1 else number))
    assert MOST_ERRORS / 2 <= len(times.errors_ns) <= MOST_ERRORS
    found = times.to_json()
    assert found["median_error_s"] == pytest.approx(count / 2 / 1e9, rel=0.01)
    assert (found["worst_error_s"], found["messages"]) == (1.0, count)


async def test_the_loops_lag_is_sampled():
    found = Meter()
    task = asyncio.create_task(found.watch_loop(RealClock()))
    async with asyncio.timeout(60):
        while len(found.lags_ns) < 2:  # noqa: ASYNC110 - nothing tells of a sample
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    assert all(lag >= 0 for lag in found.lags_ns)
