"""FedScale's device capacities and availability, converted to tables that scenarios name.

Users bring these files. `client_device_capacity` has for each device its computing time per example in ms
(`computation`), and its bandwidth in kbit/s (`communication`). `client_behave_trace` has the seconds at which a device
becomes `active` and `inactive` in a trace that ends at `finish_time`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from netdfl.core.errors import InputError, RunError
from netdfl.core.files import write_whole, writing
from netdfl.core.plain_pickle import plain_pickle
from netdfl.core.rng import Streams

Kind: TypeAlias = Literal["devices", "availability"]
_DEVICES = ("node", "device", "compute_ms", "uplink_kbps", "downlink_kbps")
_ABSENCES = ("node", "leave_s", "join_s")
_FORMS = (
    "{device: {computation: 1.5, communication: 4000}}, or "
    "{device: {active: [0, 90], inactive: [50, 120], finish_time: 120}}"
)


class ConvertedTable(NamedTuple):
    """A table for scenarios that `convert` wrote from a file of FedScale.

    Attributes:
        kind: whether it has devices' capacities or their availability.
        file: its path.
        num_nodes: the number of nodes in it.
        num_devices: the number of devices in FedScale's file.
    """

    kind: Kind
    file: Path
    num_nodes: int
    num_devices: int

    @property
    def usage(self) -> list[str]:
        """The lines of a scenario that name the table."""
        if self.kind == "availability":
            return [f"events: [{{from: 0s, churn: all, file: {self.file.name}}}]"]
        return [
            f"world: {{kind: simulated, compute: {{kind: table, file: {self.file.name}, scale: 96}}}}"
            "  # 3 x 32 examples a round",
            f"links_from: {{file: {self.file.name}}}",
        ]


def convert(source: Path, out: Path, *, nodes: int | None = None, seed: int = 0) -> ConvertedTable:
    """Write the scenario table for a FedScale file: of device capacities or of availability, depending on the file.

    With `nodes`, as many devices are drawn by `seed`; else all are taken, in the order of the file. Raises InputError
    for other contents, RunError if the table can't be written.
    """
    data = plain_pickle(source)
    if not isinstance(data, dict) or not data or not all(isinstance(each, dict) for each in data.values()):
        raise InputError(f"{source} is no file of FedScale: expected {_FORMS}")
    chosen = _chosen(source, list(data), nodes, seed)
    first = data[chosen[0]]
    kind: Kind
    rows: list[tuple[object, ...]]
    if {"computation", "communication"} <= first.keys():
        kind, rows = "devices", [_DEVICES, *_devices(source, data, chosen)]
    elif {"active", "inactive"} <= first.keys():
        kind, rows = "availability", [_ABSENCES, *_absences(source, data, chosen)]
    else:
        raise InputError(f"{source}: device {chosen[0]} has {', '.join(map(str, first))}: expected {_FORMS}")
    if len(rows) == 1:
        raise InputError(f"{source}: none of the {len(chosen)} devices is ever away; leave churn out of the scenario")
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    with writing(out, RunError):
        out.parent.mkdir(parents=True, exist_ok=True)
        write_whole(out, text.getvalue().encode())
    return ConvertedTable(kind, out, len(chosen), len(data))


def _chosen(source: Path, devices: Sequence[Hashable], nodes: int | None, seed: int) -> Sequence[Hashable]:
    if nodes is None:
        return devices
    if nodes > len(devices):
        raise InputError(
            f"{source} has {len(devices)} devices, fewer than --nodes {nodes}; ask for no more than it has"
        )
    order = Streams(seed).rng("devices").permutation(len(devices))[:nodes]
    return [devices[place] for place in order.tolist()]


def _devices(source: Path, data: Mapping[Hashable, Any], chosen: Sequence[Hashable]) -> Iterator[tuple[object, ...]]:
    for node, device in enumerate(chosen):
        compute, rate = (_number(source, data, device, name) for name in ("computation", "communication"))
        if compute < 0 or rate <= 0:
            what = f"computation {compute:g} and communication {rate:g}"
            raise InputError(f"{source}: device {device}: {what} are no speeds; mend or leave out the device")
        yield node, device, f"{compute:.10g}", f"{rate:.10g}", f"{rate:.10g}"


def _number(source: Path, data: Mapping[Hashable, Any], device: Hashable, name: str) -> float:
    value = data[device].get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        what = f"{name} is {value!r}, expected a number"
        raise InputError(f"{source}: device {device}: {what}; mend or leave out the device")
    return float(value)


def _absences(source: Path, data: Mapping[Hashable, Any], chosen: Sequence[Hashable]) -> Iterator[tuple[object, ...]]:
    """Yield (node, begin, end) in seconds for each absence of each node's device within its trace, in order of time."""
    for node, device in enumerate(chosen):
        on, off = (_times(source, data, device, name) for name in ("active", "inactive"))
        end = max([*on, *off], default=0.0)
        if "finish_time" in data[device]:
            end = _number(source, data, device, "finish_time")
        moments = sorted([*((at, True) for at in on), *((at, False) for at in off)])
        away: float | None = None if not moments or not moments[0][1] or moments[0][0] == 0 else 0.0
        for at, is_on in moments:
            if not is_on and away is None:
                away = at
            elif is_on and away is not None:
                if at > away:
                    yield node, f"{away:.10g}", f"{at:.10g}"
                away = None
        if away is not None and end > away:
            yield node, f"{away:.10g}", f"{end:.10g}"


def _times(source: Path, data: Mapping[Hashable, Any], device: Hashable, name: str) -> list[float]:
    found = data[device].get(name)
    if not isinstance(found, list | tuple) or not all(
        isinstance(at, int | float) and not isinstance(at, bool) and math.isfinite(at) and at >= 0 for at in found
    ):
        what = f"{name} is no list of seconds from 0 on"
        raise InputError(f"{source}: device {device}: {what}; mend or leave out the device")
    return [float(at) for at in found]
