"""How many messages were sent, and what became of them, up to each moment of a run."""

from __future__ import annotations

import numpy as np

from netdfl.core.fates import Fate, FateClass, class_of
from netdfl.record.run import Run
from netdfl.report.data.columns import Floats, Made, whole
from netdfl.report.data.frame import Frame

NUMBERS = {name: number for number, name in enumerate(FateClass)}
CLASS_NUMBER = f"""CASE split_part(fate, ':', 1) {
    " ".join(f"WHEN '{fate.value}' THEN {NUMBERS[class_of(fate.value)]}" for fate in Fate)
} END"""
"""The place of a message's class in `FateClass`, as SQL."""
CLASSES = tuple(name for name in FateClass if name is not FateClass.UNFINISHED)


def count_by_moment(run: Run, frame: Frame) -> Made:
    """Messages and bytes sent, and messages of each class, up to and including each moment.

    A message counts as sent when it was first sent, and has its fate when it arrived, or, where it did not, at once.
    Where not every message is recorded, those of a round count when the last of them has its fate.
    """
    if not run.sampling.is_all:
        return _by_round(run, frame)
    when, then = ("round + 1", "round + 1") if frame.by_round else ("sent_s", "coalesce(arrived_s, sent_s)")
    sent = run.columns(f"SELECT {when} AS sent, {then} AS decided, nbytes, {CLASS_NUMBER} AS class FROM messages")
    found: Made = {
        "sent": _up_to(frame, sent["sent"]),
        "nbytes": _up_to(frame, sent["sent"], sent["nbytes"]),
    }
    for name in CLASSES:
        of = sent["decided"][sent["class"] == NUMBERS[name]]
        if len(of):
            found[name.value] = _up_to(frame, of)
    return found


def _by_round(run: Run, frame: Frame) -> Made:
    when = "round + 1" if frame.by_round else "until_s"
    rows = run.columns(f"SELECT {when} AS at, messages, nbytes, {CLASS_NUMBER} AS class FROM round_totals")
    found: Made = {
        "sent": _up_to(frame, rows["at"], rows["messages"]),
        "nbytes": _up_to(frame, rows["at"], rows["nbytes"]),
    }
    for name in CLASSES:
        of = rows["class"] == NUMBERS[name]
        if of.any():
            found[name.value] = _up_to(frame, rows["at"][of], rows["messages"][of])
    return found


def _up_to(frame: Frame, times: Floats, amounts: Floats | None = None) -> list[float | int | None]:
    places = np.searchsorted(frame.moments, times)  # the first moment at or after each
    sums = np.bincount(places, amounts, minlength=len(frame.moments) + 1)
    return whole(np.cumsum(sums[: len(frame.moments)]))
