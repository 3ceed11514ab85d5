"""Numbers that describe a link rule in the long run: share of lost messages, bursts of losses, mean delay, rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from netdfl.core.units import format_bytes, format_time
from netdfl.links.rules.disorder import Reordering
from netdfl.links.rules.latency import Delay
from netdfl.links.rules.loss import Bernoulli, DropList, Trace
from netdfl.links.rules.mahimahi import Opportunities
from netdfl.links.rules.rate import Shape
from netdfl.links.rules.recorded import RecordedLoss

_TRACE_BITS = 8 * 1500


def figures(part: object) -> Mapping[str, object]:
    """Return the numbers that describe one built rule, by name; a rule has some of them, a user's own rule maybe none.

    - `stationary_loss`, `mean_burst`: the share of lost messages, and the mean number lost in a row (None: forever);
    - `messages`: the number of messages that a list of losses names;
    - `mean_ns`: the mean delay;
    - `rate_bps`, `burst_bytes`, `queue_bytes`, `queue_messages`: the rate (a trace's mean), token bucket and queue
      limit;
    - `probability`, `delay_ns`: of duplication, corruption or reordering.
    """
    if isinstance(part, DropList):
        return {"messages": len(part.messages)}
    if isinstance(part, RecordedLoss):
        return {"messages": sum(each.lost for each in part.messages)}
    if isinstance(part, Delay):
        return _given(mean_ns=part.mean_ns)
    if isinstance(part, Shape):
        queue = {"queue_bytes": part.queue_bytes, "queue_messages": part.queue_messages}
        return _given(rate_bps=part.rate_bps, burst_bytes=part.burst_bytes or None, **queue)
    if isinstance(part, Opportunities):
        mean = len(part.at_ns) * _TRACE_BITS * 1e9 / part.period_ns
        return _given(rate_bps=mean, queue_bytes=part.queue_bytes, queue_messages=part.queue_messages)
    if hasattr(part, "stationary_loss") and hasattr(part, "mean_burst"):
        burst = part.mean_burst
        return {"stationary_loss": part.stationary_loss, "mean_burst": None if burst == float("inf") else burst}
    if isinstance(part, Bernoulli):
        p = part.probability
        return {"stationary_loss": p, "mean_burst": _burst(p, p * (1 - p))}
    if isinstance(part, Trace):
        losses = part.losses
        starts = sum(lost > before for before, lost in zip(losses[-1:] + losses, losses, strict=False))
        return {"stationary_loss": sum(losses) / len(losses), "mean_burst": _burst(sum(losses), starts)}
    delay = part.delay_ns if isinstance(part, Reordering) else None
    return _given(probability=getattr(part, "probability", None), delay_ns=delay)


def _burst(lost: float, starts: float) -> float | None:
    return None if lost and not starts else lost / starts if lost else 0.0


def say(found: Mapping[str, object]) -> str:
    """Return the numbers `found`, which `figures` returned for a rule, as one text such as `loses 5%, 3 in a row`."""
    words: Mapping[str, Callable[[Any], str]] = {
        "stationary_loss": lambda share: f"loses {100 * share:.3g}%",
        "mean_burst": lambda burst: "without end" if burst is None else f"{burst:.3g} in a row",
        "messages": lambda number: f"loses {number} listed",
        "probability": lambda share: f"{100 * share:.3g}%",
        "delay_ns": lambda ns: f"by {format_time(ns)}",
        "mean_ns": lambda ns: f"mean {ns / 1e6:.4g} ms",
        "rate_bps": lambda rate: f"{rate / 1e6:.4g} Mbit/s",
        "burst_bytes": lambda size: f"bucket {format_bytes(size)}",
        "queue_bytes": lambda size: f"queue {format_bytes(size)}",
        "queue_messages": lambda number: f"queue {number} messages",
    }
    return ", ".join(words[name](value) for name, value in found.items())


def comes_to(rule: Mapping[str, Any]) -> str:
    """Return the numbers of a rule, a row of the run's table `link_rules`, as text.

    The text of a rule that a scheduled event sets also has the times at which the rule holds.
    """
    figures = rule["figures"]
    if rule["event"] is not None:
        figures = {name: value for name, value in figures.items() if (name, value) != ("mean_burst", None)}
    return "; ".join(filter(None, [say(figures), rule.get("when")]))


def _given(**found: object) -> dict[str, object]:
    return {name: value for name, value in found.items() if value is not None}
