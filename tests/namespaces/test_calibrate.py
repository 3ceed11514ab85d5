"""Messages timed over real TCP in namespaces: each takes its way and its bytes at least; a first one is not counted."""

from __future__ import annotations

from netdfl.links.rules.tcp import on_the_line_ns
from netdfl.packets.calibration.measure import GIVE_UP_S, RATES_BPS, RTTS_NS, SIZES, CalibrationCell, measure


def test_messages_take_their_way_and_their_bytes() -> None:
    cells = [
        CalibrationCell(SIZES[0], 0.0, RTTS_NS[0], RATES_BPS[0]),
        CalibrationCell(SIZES[2], 0.01, RTTS_NS[1], RATES_BPS[1]),
    ]
    said: list[str] = []
    times = measure(cells, 1, 1 / 60, said.append)
    assert [(cell, *map(len, some)) for cell, some in times.items()] == [(cells[0], *6 * (1,)), (cells[1], *8 * (2,))]
    for cell, connections in times.items():
        some = [each for one in connections for each in one]
        assert min(some) >= (cell.rtt_ns / 2 + on_the_line_ns(cell.nbytes, cell.rate_bps)) / 1e9
        assert max(some) < GIVE_UP_S
    assert sum("late" in line for line in said) == 2
