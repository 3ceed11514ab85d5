"""What a file says of one link, and the names and units in which files say it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from netdfl.core.units import format_time, parse_rate_bps, parse_time_ns

KM_PER_S = 200_000.0
"""How fast light is in a fibre: two thirds of its speed in vacuum."""
LATENCY, RTT, RATE, LOSS, DISTANCE = "latency", "rtt", "rate", "loss", "distance"
UP, DOWN, UP_DELAY, DOWN_DELAY = "uplink", "downlink", "delay of what it sends", "delay of what it receives"
NAMES: Mapping[str, str] = {
    **dict.fromkeys(("latency", "delay", "owd", "oneway", "onewaydelay", "propagationdelay"), LATENCY),
    **dict.fromkeys(("rtt", "ping", "avg", "mean", "median", "rttavg", "avgrtt", "roundtrip", "roundtriptime"), RTT),
    **dict.fromkeys(("bandwidth", "throughput", "capacity", "rate", "bitspersecond", "linkspeedraw", "bw"), RATE),
    **dict.fromkeys(("availablebandwidth", "avgbandwidth", "maxbandwidth", "availablecapacity"), RATE),
    **dict.fromkeys(("preinstalledcapacity", "linkcapacity", "datarate", "linkspeed", "speed"), RATE),
    **dict.fromkeys(("loss", "packetloss", "lossrate", "plr", "lostpercent"), LOSS),
    **dict.fromkeys(("distance", "length", "dist", "lengthkm", "linklength"), DISTANCE),
}
"""What attributes and columns are called, in lower case and without punctuation or a unit at the end."""
_QUANTITIES = ("bandwidth", "rate", "capacity", "speed", "throughput")
_WAYS = {"up": UP, "upload": UP, "uplink": UP, "upstream": UP, "egress": UP}
_WAYS |= {"down": DOWN, "download": DOWN, "downlink": DOWN, "downstream": DOWN, "ingress": DOWN}
OF_NODES: Mapping[str, str] = {
    **{f"{quantity}{way}": what for way, what in _WAYS.items() for quantity in _QUANTITIES},
    **{f"{way}{quantity}": what for way, what in _WAYS.items() for quantity in _QUANTITIES},
    **{way: what for way, what in _WAYS.items() if way.endswith(("load", "link"))},
    **{
        f"{way}{delay}": {UP: UP_DELAY, DOWN: DOWN_DELAY}[what]
        for way, what in _WAYS.items()
        for delay in ("delay", "latency")
    },
}
"""What attributes of nodes are called, likewise, and without `host` before them."""
UNITS: Mapping[str, tuple[str, str]] = {
    **{unit: ("time", unit) for unit in ("ns", "us", "ms", "s")},
    **{f"{p.lower()}{u}": ("rate", f"{p}bit") for p in ("", "k", "M", "G", "T") for u in ("bps", "bit", "bits")},
    "km": ("distance", "km"),
    "m": ("distance", "m"),
    "percent": ("share", "%"),
    "pct": ("share", "%"),
}
_NUMBER = re.compile(r"^\s*[<>~]?\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/%]*)\s*$")
_NOTHING = {"", "-", "--", "na", "n/a", "nan", "none", "null", "inf", "*", "?", "timeout"}


@dataclass(frozen=True, slots=True)
class Named:
    """What a column or attribute holds, and the unit that its name ends with."""

    what: str
    unit: str = ""


@dataclass(slots=True)
class Facts:
    """All that files say of one link, each as often as they say it: seconds one way, bits per second, shares."""

    latency_s: list[float] = field(default_factory=list)
    rate_bps: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)

    def copy(self) -> Facts:
        """The same, that changes alone."""
        return Facts([*self.latency_s], [*self.rate_bps], [*self.loss])

    def rules(self) -> dict[str, str]:
        """The keys of a link, of the median of what is said."""
        rules: dict[str, str] = {}
        if self.latency_s:
            rules["latency"] = format_time(round(median(self.latency_s) * 1e9))
        if self.rate_bps:
            rules["rate"] = f"{round(median(self.rate_bps))}bit"
        if self.loss and median(self.loss) > 0:
            rules["loss"] = f"{100 * median(self.loss):.10g}%"
        return rules


def named_of_node(name: str) -> Named | None:
    """What an attribute of a node stands for: `host_bandwidth_up`, `upload_mbps`, `uploadDelay`; None likewise."""
    return named(re.sub(r"^host_?", "", name, flags=re.IGNORECASE), OF_NODES)


def named(name: str, names: Mapping[str, str] = NAMES) -> Named | None:
    """What `name` stands for: `RTT (ms)`, `latency_ms`, `LinkSpeedRaw`, `Packet Loss`; None where nothing known."""
    words = [word for word in re.split(r"[^A-Za-z]+", name.lower()) if word]
    if len(words) > 1 and words[-1] in UNITS and "".join(words[:-1]) in names:
        return Named(names["".join(words[:-1])], UNITS[words[-1]][1])
    plain = "".join(words)
    if plain in names:
        return Named(names[plain], "bit" if plain in ("linkspeedraw", "bitspersecond") else "")
    return Named(LOSS, "%") if plain == "losspercent" and names is NAMES else None


@dataclass(slots=True)
class AtNode:
    """What files say of one node: bits per second of its uplink and downlink, seconds added to what passes these."""

    rate_bps: dict[str, float] = field(default_factory=dict)
    delay_s: dict[str, float] = field(default_factory=dict)

    def rules(self) -> dict[str, str]:
        """The keys of a node."""
        return {what: f"{round(rate)}bit" for what, rate in self.rate_bps.items()}


def add_at(node: AtNode, what: Named, value: object, *, delay_unit: str, rate_unit: str) -> None:
    """Note what `value` says of a node. Raises ValueError likewise."""
    facts = Facts()
    is_rate = what.what in (UP, DOWN)
    add(facts, Named(RATE if is_rate else LATENCY, what.unit), value, delay_unit=delay_unit, rate_unit=rate_unit)
    if is_rate:
        node.rate_bps[what.what] = facts.rate_bps[0]
    else:
        node.delay_s[what.what] = facts.latency_s[0]


def is_nothing(text: object) -> bool:
    """Whether a cell says that nothing is known."""
    return str(text).strip().lower() in _NOTHING


def add(facts: Facts, what: Named, value: object, *, delay_unit: str, rate_unit: str) -> None:
    """Note what `value` says. A number alone is in the unit of its name, or in `delay_unit`, `rate_unit`, km, a share.

    Raises:
        ValueError: It is no such quantity.
    """
    match = _NUMBER.match(str(value))
    if match is None:
        raise ValueError(f"{str(value)!r} is no {what.what}; write a number, with a unit if need be")
    number, unit = match[1], match[2] or what.unit
    if what.what in (LATENCY, RTT):
        seconds = parse_time_ns(number + (unit or delay_unit)) / 1e9
        facts.latency_s.append(seconds / 2 if what.what == RTT else seconds)
    elif what.what == RATE:
        facts.rate_bps.append(parse_rate_bps(number + (_rate_unit(unit) or rate_unit)))
    elif what.what == LOSS:
        facts.loss.append(_share(float(number), unit))
    else:
        facts.latency_s.append(float(number) / (1000 if unit == "m" else 1) / KM_PER_S)


def _rate_unit(unit: str) -> str:
    """A unit as netdfl writes it: `Gbps` and `G` are `Gbit`."""
    if unit in ("k", "K", "M", "G", "T"):
        return f"{unit}bit"
    known = UNITS.get(unit.lower().replace("/s", "ps").replace("bitps", "bps"))
    return known[1] if known and known[0] == "rate" else unit


def _share(number: float, unit: str) -> float:
    share = number / 100 if unit == "%" else number
    if not 0 <= share <= 1:
        raise ValueError(f"{number:g} is no share of messages; write 0 to 1, or a percentage like 5%")
    return share
