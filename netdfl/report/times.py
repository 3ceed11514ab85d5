"""Where the time went, as rows and words: what `time` in `result.json` holds."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from netdfl.core.types import Json
from netdfl.record.time_spent import seconds
from netdfl.report.words import share

PARTS = {
    "compute_s": "compute",
    "links_s": "links: delay, rate and queues",
    "resending_s": "until what was lost was sent again",
    "deadlines_s": "until deadlines, for messages that did not come in time",
    "lost_s": "until later messages told that one was lost",
    "behind_s": "waiting for nodes that were behind, down, paused or slow",
    "rest_s": "anything else: mixing, sending, saving",
    "end_s": "at the end, in which no node went on",
}


def part_rows(spent: Json) -> list[list[str]]:
    """What the fleet's time was spent on: the parts, the largest first, with their shares."""
    parts = sorted(((spent[key], words) for key, words in PARTS.items() if spent[key] > 0), reverse=True)
    return [[words, seconds(value), share(value / spent["total_s"])] for value, words in parts]


def round_words(spent: Json) -> str:
    """`1.05 s at the median, 31 s at most (round 3); deadlines of 2 s to 34 s`."""
    lengths = [value for value in spent["rounds"]["median_s"] if value is not None]
    longest = max((value, -round) for round, value in enumerate(spent["rounds"]["longest_s"]) if value is not None)
    limits = [value for value in spent["rounds"]["deadline_s"] if value is not None]
    words = f"{seconds(median(lengths))} at the median, {seconds(longest[0])} at most (round {-longest[1]})"
    return f"{words}; {_deadlines(limits)}" if limits else words


def _deadlines(limits: Sequence[float]) -> str:
    low, high = seconds(min(limits)), seconds(max(limits))
    return f"a deadline of {low}" if low == high else f"deadlines of {low} to {high}"
