"""Heartbeats in queues of packets: the figures of `tests.soak.heartbeats_in_queues`, which measures them."""

from __future__ import annotations

from pathlib import Path

import netdfl
from tests.soak.heartbeats_in_queues import MARKS, Beats, figures, measured, row, scenario
from tests.soak.shared_packets import write


def test_the_longest_silence_is_of_one_sender_and_tells_how_many_beats_were_missed() -> None:
    rows = [(0, 0.0, 0.02), (1, 0.0, 0.03), (1, 0.1, 0.13), (0, 0.1, 0.67), (0, 0.2, 0.68)]
    found = figures(rows)
    assert [round(each, 6) for each in found] == [0.03, 0.57, 0.65, 6]
    assert row("a queue", Beats(0.02, 0.5, 0.6, 5)) == "| a queue | 0.02 | 0.50 | 0.60 | 5 |"


def test_in_the_model_a_heartbeat_has_its_share_at_once() -> None:
    found = measured({}, {"kind": "simulated", "loss_layer": "packet"})
    assert 0.02 <= found.median_s <= found.longest_s < 0.05
    assert found.missed <= 1


def test_the_fleet_is_one_that_packets_can_carry() -> None:
    netdfl.load(scenario({"queue": "50kB"}, {"kind": "namespaces"}))


def test_the_table_goes_between_its_own_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"a\n{MARKS[0]}{MARKS[1]}\nb\n")
    write(page, ["| 1 |"], MARKS)
    assert page.read_text() == f"a\n{MARKS[0]}\n\n| 1 |\n\n{MARKS[1]}\nb\n"
