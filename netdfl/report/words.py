"""Numbers as people read them; what was never measured is a dash."""

from __future__ import annotations


def share(value: float | None) -> str:
    """A fraction as a percentage: `93.1%`."""
    return "–" if value is None else f"{value:.1%}"


def figure(value: float | None) -> str:
    """A number with three digits."""
    return "–" if value is None else f"{value:.3g}"


def duration(seconds: float) -> str:
    """`3.2 s`, `48 s`, `2 min 5 s`, `3 h 12 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes_left} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
