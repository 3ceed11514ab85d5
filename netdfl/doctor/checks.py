"""What is found of machines, and what that means for a fleet. Sans-I/O: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from netdfl.core.units import format_bytes
from netdfl.core.versions import DECIDING, TORCH

HERE = "here"
LATE_S, TOO_LATE_S = 60.0, 86_400.0
"""Clocks may be so far off each other: beyond the first, times in logs mislead; beyond the other, TLS refuses."""
LEAST_DISK, LEAST_FILES = 2 << 30, 1024

Facts = Mapping[str, Any]


class State(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at on one machine, or between two; `remedy` says what to do."""

    machine: str
    what: str
    state: State
    said: str
    remedy: str = ""


@dataclass(frozen=True)
class Gathered:
    """What is known: the facts of each machine, `here` first, how far its clock is ahead, and who reaches whom."""

    facts: Mapping[str, Facts]
    ahead_s: Mapping[str, float] = field(default_factory=dict)
    ways: Sequence[Mapping[str, Any]] = ()
    silent: Mapping[str, str] = field(default_factory=dict)
    """Machines that did not answer, and what they, or the engine, said."""
    worlds: Mapping[str, str] = field(default_factory=dict)
    """Why each world can't run here; empty: it can."""


def judge(known: Gathered, *, device: str = "auto", wanted: str | None = None, trains: bool = True) -> list[Finding]:
    """All findings; `wanted` is the world that was asked for, `device` where its nodes would compute.

    Nothing needs PyTorch unless something `trains`.
    """
    found = [
        Finding(name, "start", State.FAIL, said, "see that the same Python, with netdfl, is at the same path there")
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


def _software(name: str, facts: Facts, here: Facts, trains: bool) -> Iterator[Finding]:
    theirs, ours = (each["python"].rpartition(".")[0] for each in (facts, here))
    alike = theirs == ours
    yield _one(name, "python", alike, f"{facts['python']}, {facts['system']}", f"install Python {ours} there, as here")
    counts = {package: version for package, version in facts["versions"].items() if trains or package != TORCH}
    exact = [p for p, v in counts.items() if v != here["versions"][p] and p in DECIDING]
    other = [p for p, v in counts.items() if v != here["versions"][p] and p not in DECIDING]
    state = State.FAIL if exact else State.WARNING if other else State.OK
    versions = ", ".join(f"{package} {version or 'missing'}" for package, version in facts["versions"].items())
    differ = ", ".join(f"{p} {facts['versions'][p] or 'none'}, {here['versions'][p]} here" for p in (*exact, *other))
    remedy = f"install the same versions: {differ}" if differ else ""
    yield Finding(name, "versions", state, versions, remedy)
    if name != HERE:
        same = facts["source"] == here["source"]
        said = "as here" if same else "another state than here"
        yield _one(name, "code", same, f"netdfl's code is {said}", "install netdfl anew there, from what is here")


def _machine(name: str, facts: Facts, device: str) -> Iterator[Finding]:
    refused = facts["listens"]
    yield _one(name, "ports", not refused, refused or "it can listen", "name another network (world.network)")
    for where, why in facts.get("taken", {}).items():
        yield Finding(
            name, "ports", State.FAIL, f"{where}: {why}", "end what listens there, or give the node another port"
        )
    for asked, address in facts["names"].items():
        yield _one(name, "names", bool(address), f"{asked} is {address or 'not known'}", "add it to DNS or /etc/hosts")
    cores, gpus = facts["cores"], facts["gpus"]
    fits = gpus > 0 or not device.startswith("cuda")
    said = f"{cores} cores, {format_bytes(facts['memory_bytes'])} of memory, {gpus} GPUs"
    yield _one(name, "hardware", fits, said, f"task.device is {device}: write auto, or install a CUDA build of PyTorch")
    free = facts["disk_free_bytes"]
    said = f"{format_bytes(free)} are free in {facts['temporary']}"
    yield _one(name, "disk", free >= LEAST_DISK, said, "make room, or set TMPDIR", State.WARNING)
    files = facts["open_files"]
    said = f"a process may open {files} files"
    yield _one(name, "files", not 0 < files < LEAST_FILES, said, f"ulimit -n {4 * LEAST_FILES}", State.WARNING)
    for dataset, there in facts["datasets"].items():
        said = f"{dataset} is {'' if there else 'not '}there"
        yield _one(name, "data", there, said, f"netdfl data get {dataset} there, or set NETDFL_DATA")


def _clock(name: str, ahead_s: float | None) -> Iterator[Finding]:
    if ahead_s is None:
        return
    off = abs(ahead_s)
    state = State.FAIL if off > TOO_LATE_S else State.WARNING if off > LATE_S else State.OK
    said = f"{off:.1f} s {'ahead of' if ahead_s > 0 else 'behind'} here"
    yield Finding(name, "clock", state, said, "" if state is State.OK else "set it, or run an NTP service")


def _network(ways: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    for way in ways:
        trip, rate = way.get("round_trip_s"), way.get("rate_bps")
        place = f"{way['src']} → {way['dst']}"
        if isinstance(trip, float):
            at = f", {rate / 1e6:,.4g} Mbit/s" if isinstance(rate, float) and rate > 0 else ""
            yield Finding(place, "network", State.OK, f"{trip * 1e3:.3g} ms there and back{at}")
        else:
            remedy = "open the ports that the system gives between the machines (32768 to 60999), or see world.network"
            yield Finding(place, "network", State.FAIL, f"not reached: {trip}", remedy)


def _worlds(worlds: Mapping[str, str], wanted: str | None) -> Iterator[Finding]:
    for world, why in worlds.items():
        bad = State.FAIL if world == wanted else State.NOTE
        yield Finding(HERE, f"world {world}", bad if why else State.OK, why or "can run here")


def _one(name: str, what: str, good: bool, said: str, remedy: str, bad: State = State.FAIL) -> Finding:
    return Finding(name, what, State.OK if good else bad, said, "" if good else remedy)


def lines(found: Sequence[Finding]) -> Iterator[str]:
    """A line a finding, the remedy below it, and at the end how many are bad."""
    place = max((len(each.machine) for each in found), default=0)
    what = max((len(each.what) for each in found), default=0)
    for each in found:
        yield f"{each.state.value:8} {each.machine:{place}}  {each.what:{what}}  {each.said}"
        if each.remedy:
            yield f"{'':8} {'':{place}}  {'':{what}}  → {each.remedy}"
    counted = {state: sum(each.state is state for each in found) for state in (State.FAIL, State.WARNING)}
    if counted[State.FAIL]:
        yield f"{counted[State.FAIL]} must be mended before a fleet runs here"
    elif counted[State.WARNING]:
        yield f"a fleet can run; {counted[State.WARNING]} warnings"
    else:
        yield "all is well"
