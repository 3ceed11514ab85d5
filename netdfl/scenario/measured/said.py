"""The measurements of one link or node, and the names and units of quantities that files use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from netdfl.core.units import format_time, parse_rate_bps, parse_time_ns

KM_PER_S = 200_000.0
"""The speed of light in fiber, in kilometers per second: two thirds of its speed in vacuum."""
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
"""Names of link attributes and table columns, in lower case without punctuation and unit, with their quantities."""
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
"""Names of node attributes, in lower case and without punctuation, unit and `host`, with their quantities."""
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
class NamedQuantity:
    """The quantity that a column or attribute measures, and the unit at the end of its name."""

    what: str
    unit: str = ""


@dataclass(slots=True)
class LinkMeasurements:
    """All measurements of one link, in file order: delays in seconds one way, rates in bit/s, losses as shares."""

    latency_s: list[float] = field(default_factory=list)
    rate_bps: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)

    def copy(self) -> LinkMeasurements:
        """Return an independent copy."""
        return LinkMeasurements([*self.latency_s], [*self.rate_bps], [*self.loss])

    def rules(self) -> dict[str, str]:
        """Return the link rules (latency, rate, loss) of a scenario entry, from the median of all measurements."""
        rules: dict[str, str] = {}
        if self.latency_s:
            rules["latency"] = format_time(round(median(self.latency_s) * 1e9))
        if self.rate_bps:
            rules["rate"] = f"{round(median(self.rate_bps))}bit"
        if self.loss and median(self.loss) > 0:
            rules["loss"] = f"{100 * median(self.loss):.10g}%"
        return rules


def named_of_node(name: str) -> NamedQuantity | None:
    """Return the quantity of a node attribute (`host_bandwidth_up`, `uploadDelay`); None for other names."""
    return named(re.sub(r"^host_?", "", name, flags=re.IGNORECASE), OF_NODES)


def named(name: str, names: Mapping[str, str] = NAMES) -> NamedQuantity | None:
    """Return the quantity of a name (`RTT (ms)`, `latency_ms`, `LinkSpeedRaw`); None for an unknown name."""
    words = [word for word in re.split(r"[^A-Za-z]+", name.lower()) if word]
    if len(words) > 1 and words[-1] in UNITS and "".join(words[:-1]) in names:
        return NamedQuantity(names["".join(words[:-1])], UNITS[words[-1]][1])
    plain = "".join(words)
    if plain in names:
        return NamedQuantity(names[plain], "bit" if plain in ("linkspeedraw", "bitspersecond") else "")
    return NamedQuantity(LOSS, "%") if plain == "losspercent" and names is NAMES else None


@dataclass(slots=True)
class NodeMeasurements:
    """The measurements of one node: rates of its uplink and downlink in bits per second, delays in seconds."""

    rate_bps: dict[str, float] = field(default_factory=dict)
    delay_s: dict[str, float] = field(default_factory=dict)

    def rules(self) -> dict[str, str]:
        """Return the rules for the node's uplink and downlink, as a scenario entry writes them."""
        return {what: f"{round(rate)}bit" for what, rate in self.rate_bps.items()}


def add_at(node: NodeMeasurements, what: NamedQuantity, value: object, *, delay_unit: str, rate_unit: str) -> None:
    """Add the measurement `value` of the quantity `what` to a node. Raises ValueError if it is not a valid one.

    A number without a unit, in itself or in its name, has `delay_unit` or `rate_unit`.
    """
    facts = LinkMeasurements()
    is_rate = what.what in (UP, DOWN)
    add(
        facts, NamedQuantity(RATE if is_rate else LATENCY, what.unit), value, delay_unit=delay_unit, rate_unit=rate_unit
    )
    if is_rate:
        node.rate_bps[what.what] = facts.rate_bps[0]
    else:
        node.delay_s[what.what] = facts.latency_s[0]


def is_number(text: object) -> bool:
    """Return whether a cell of a table is a number, or a number with a unit, like `12.5 ms`."""
    match = _NUMBER.match(str(text))
    return match is not None and (not match[2] or match[2] == "%" or match[2].lower() in UNITS)


def is_nothing(text: object) -> bool:
    """Return whether a cell of a table stands for an unknown value."""
    return str(text).strip().lower() in _NOTHING


def add(facts: LinkMeasurements, what: NamedQuantity, value: object, *, delay_unit: str, rate_unit: str) -> None:
    """Add the measurement `value` of the quantity `what` to `facts`, the measurements of a link.

    A bare number has the unit in its attribute's name. Without one, delays have `delay_unit`, rates have `rate_unit`,
    distances are in km, and losses are shares.

    Raises:
        ValueError: `value` is not a valid quantity of this kind.
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
    """Convert a unit to netdfl's spelling: `Gbps` and `G` to `Gbit`."""
    if unit in ("k", "K", "M", "G", "T"):
        return f"{unit}bit"
    known = UNITS.get(unit.lower().replace("/s", "ps").replace("bitps", "bps"))
    return known[1] if known and known[0] == "rate" else unit


def _share(number: float, unit: str) -> float:
    share = number / 100 if unit == "%" else number
    if not 0 <= share <= 1:
        raise ValueError(f"{number:g} is no share of messages; write 0 to 1, or a percentage like 5%")
    return share
