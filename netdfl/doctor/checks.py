"""The judgement whether machines suit a fleet, from facts collected about them, without I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from netdfl.core.units import format_bytes
from netdfl.core.versions import DECIDING, TORCH

HERE = "here"
LATE_S, TOO_LATE_S = 60.0, 86_400.0
"""The largest offsets of clocks in s: above the first, times in logs mislead; above the second, TLS fails."""
LEAST_DISK, LEAST_FILES = 2 << 30, 1024

Facts = Mapping[str, Any]


class Severity(StrEnum):
    """How serious the result of a check of a machine is."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAIL = "fail"


@dataclass(frozen=True)
class MachineFinding:
    """The result of one check of a machine, or of the connection of two machines.

    Attributes:
        machine: the machine, or the two machines, that was checked.
        what: the subject of the check.
        state: how serious the result is.
        said: the result in words.
        remedy: what the user can do about it; empty if nothing is wrong.
    """

    machine: str
    what: str
    state: Severity
    said: str
    remedy: str = ""


@dataclass(frozen=True)
class MachineFacts:
    """The facts about machines that the checks need.

    Attributes:
        facts: the facts about each machine by name; this machine is `here`.
        ahead_s: how far the clock of each machine is ahead of this one's, in s.
        ways: the measured connections between machines: `src`, `dst`, round trip in s, rate in bit/s.
    """

    facts: Mapping[str, Facts]
    ahead_s: Mapping[str, float] = field(default_factory=dict)
    ways: Sequence[Mapping[str, Any]] = ()
    silent: Mapping[str, str] = field(default_factory=dict)
    """Machines that did not answer, with the reason."""
    worlds: Mapping[str, str] = field(default_factory=dict)
    """The reason why each world can't run here; empty if it can."""


def judge(
    known: MachineFacts, *, device: str = "auto", wanted: str | None = None, trains: bool = True
) -> list[MachineFinding]:
    """Judge the facts about machines; return the results of all checks.

    `wanted` is the world that the scenario asks for, `device` the device for its nodes. PyTorch is needed only if the
    scenario `trains`.
    """
    found = [
        MachineFinding(
            name, "start", Severity.FAIL, said, "see that the same Python, with netdfl, is at the same path there"
        )
        for name, said in known.silent.items()
    ]
    here = known.facts[HERE]
    for name, facts in known.facts.items():
        found += _software(name, facts, here, trains)
        found += _machine(name, facts, device)
        found += _clock(name, known.ahead_s.get(name))
    found += _network(known.ways)
    found += _worlds(known.worlds, wanted)
    return found


def _software(name: str, facts: Facts, here: Facts, trains: bool) -> Iterator[MachineFinding]:
    theirs, ours = (each["python"].rpartition(".")[0] for each in (facts, here))
    alike = theirs == ours
    yield _one(name, "python", alike, f"{facts['python']}, {facts['system']}", f"install Python {ours} there, as here")
    counts = {package: version for package, version in facts["versions"].items() if trains or package != TORCH}
    exact = [p for p, v in counts.items() if v != here["versions"][p] and p in DECIDING]
    other = [p for p, v in counts.items() if v != here["versions"][p] and p not in DECIDING]
    state = Severity.FAIL if exact else Severity.WARNING if other else Severity.OK
    versions = ", ".join(f"{package} {version or 'missing'}" for package, version in facts["versions"].items())
    differ = ", ".join(f"{p} {facts['versions'][p] or 'none'}, {here['versions'][p]} here" for p in (*exact, *other))
    remedy = f"install the same versions: {differ}" if differ else ""
    yield MachineFinding(name, "versions", state, versions, remedy)
    if name != HERE:
        same = facts["source"] == here["source"]
        said = "as here" if same else "another state than here"
        yield _one(name, "code", same, f"netdfl's code is {said}", "install netdfl anew there, from what is here")


def _machine(name: str, facts: Facts, device: str) -> Iterator[MachineFinding]:
    refused = facts["listens"]
    yield _one(name, "ports", not refused, refused or "it can listen", "name another network (world.network)")
    for where, why in facts.get("taken", {}).items():
        yield MachineFinding(
            name, "ports", Severity.FAIL, f"{where}: {why}", "end what listens there, or give the node another port"
        )
    for asked, address in facts["names"].items():
        yield _one(name, "names", bool(address), f"{asked} is {address or 'not known'}", "add it to DNS or /etc/hosts")
    cores, gpus = facts["cores"], facts["gpus"]
    fits = gpus > 0 or not device.startswith("cuda")
    said = f"{cores} cores, {format_bytes(facts['memory_bytes'])} of memory, {gpus} GPUs"
    yield _one(name, "hardware", fits, said, f"task.device is {device}: write auto, or install a CUDA build of PyTorch")
    free = facts["disk_free_bytes"]
    said = f"{format_bytes(free)} are free in {facts['temporary']}"
    yield _one(name, "disk", free >= LEAST_DISK, said, "make room, or set TMPDIR", Severity.WARNING)
    files = facts["open_files"]
    said = f"a process may open {files} files"
    yield _one(name, "files", not 0 < files < LEAST_FILES, said, f"ulimit -n {4 * LEAST_FILES}", Severity.WARNING)
    for dataset, there in facts["datasets"].items():
        said = f"{dataset} is {'' if there else 'not '}there"
        yield _one(name, "data", there, said, f"netdfl data get {dataset} there, or set NETDFL_DATA")


def _clock(name: str, ahead_s: float | None) -> Iterator[MachineFinding]:
    if ahead_s is None:
        return
    off = abs(ahead_s)
    state = Severity.FAIL if off > TOO_LATE_S else Severity.WARNING if off > LATE_S else Severity.OK
    said = f"{off:.1f} s {'ahead of' if ahead_s > 0 else 'behind'} here"
    yield MachineFinding(name, "clock", state, said, "" if state is Severity.OK else "set it, or run an NTP service")


def _network(ways: Sequence[Mapping[str, Any]]) -> Iterator[MachineFinding]:
    for way in ways:
        trip, rate = way.get("round_trip_s"), way.get("rate_bps")
        place = f"{way['src']} → {way['dst']}"
        if isinstance(trip, float):
            at = f", {rate / 1e6:,.4g} Mbit/s" if isinstance(rate, float) and rate > 0 else ""
            yield MachineFinding(place, "network", Severity.OK, f"{trip * 1e3:.3g} ms there and back{at}")
        else:
            remedy = "open the ports that the system gives between the machines (32768 to 60999), or see world.network"
            yield MachineFinding(place, "network", Severity.FAIL, f"not reached: {trip}", remedy)


def _worlds(worlds: Mapping[str, str], wanted: str | None) -> Iterator[MachineFinding]:
    for world, why in worlds.items():
        bad = Severity.FAIL if world == wanted else Severity.NOTE
        yield MachineFinding(HERE, f"world {world}", bad if why else Severity.OK, why or "can run here")


def _one(name: str, what: str, good: bool, said: str, remedy: str, bad: Severity = Severity.FAIL) -> MachineFinding:
    return MachineFinding(name, what, Severity.OK if good else bad, said, "" if good else remedy)


def lines(found: Sequence[MachineFinding]) -> Iterator[str]:
    """Yield a line for each result of a check, with its remedy below, and then the number of failures or warnings."""
    place = max((len(each.machine) for each in found), default=0)
    what = max((len(each.what) for each in found), default=0)
    for each in found:
        yield f"{each.state.value:8} {each.machine:{place}}  {each.what:{what}}  {each.said}"
        if each.remedy:
            yield f"{'':8} {'':{place}}  {'':{what}}  → {each.remedy}"
    counted = {state: sum(each.state is state for each in found) for state in (Severity.FAIL, Severity.WARNING)}
    if counted[Severity.FAIL]:
        yield f"{counted[Severity.FAIL]} must be mended before a fleet runs here"
    elif counted[Severity.WARNING]:
        yield f"a fleet can run; {counted[Severity.WARNING]} warnings"
    else:
        yield "all is well"
