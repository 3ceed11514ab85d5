"""The collection of facts from this machine, and from the machines of an engine that runs fleets, such as Slurm."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Any

from netdfl.core.errors import NetdflError
from netdfl.core.installing import pip_install
from netdfl.doctor.checks import HERE, MachineFacts
from netdfl.host.facts import facts
from netdfl.host.measuring import MeasurementServer
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import Train
from netdfl.worlds.catalog import entry_of
from netdfl.worlds.machines.machine import Engine, Machine
from netdfl.worlds.machines.network import measure
from netdfl.worlds.machines.world import address_towards

DOCUMENT = {
    "schema": "netdfl/1",
    "name": "doctor",
    "nodes": 1000,
    "rounds": 1,
    "task": {"kind": "consensus", "dim": 1},
    "algorithm": "dpsgd",
    "topology": "ring",
}
"""The scenario whose needs are checked if none is given; it has as many nodes as there may be machines."""


def gather(scenario: Scenario, addresses: Sequence[str] = ()) -> MachineFacts:
    """Collect facts from this machine, and from all machines of the scenario's world, if that runs on several.

    `addresses` (`host:port`) are those of nodes started by hand: their names are looked up, and this machine's ports
    among them are tried. Raises MachineError if the world has no machines.
    """
    names = sorted({address.rpartition(":")[0] for address in addresses})
    wanted = {"names": names, "datasets": datasets_of(scenario)}
    here = facts({**wanted, "addresses": list(addresses)})
    engine = entry_of(scenario).engine
    if engine is None:
        return MachineFacts({HERE: here}, worlds=worlds_here(here))
    return asyncio.run(_all(engine(scenario), scenario, here, wanted))


def datasets_of(scenario: Scenario) -> list[str]:
    """Return the datasets that the scenario's task reads."""
    task = scenario.task
    return [str(task.dataset.kind)] if isinstance(task, Train) else []


async def _all(engine: Engine, scenario: Scenario, here: Mapping[str, Any], wanted: Mapping[str, Any]) -> MachineFacts:
    offers = await engine.machines()
    machines = [Machine(name, offer.address, ()) for name, offer in offers.items()]
    found: dict[str, Mapping[str, Any]] = {HERE: here}
    ahead_s: dict[str, float] = {}
    silent: dict[str, str] = {}

    async def ask(machine: Machine) -> None:
        machine.start(engine)
        try:
            if network := getattr(scenario.world, "network", ""):
                await machine.find_address(network)
            await machine.look({"facts": {}})  # it loads what it needs: the next answer is quick
            before = time.time()
            told = (await machine.look({"facts": {**wanted, "listen": machine.address}}))["facts"]
            ahead_s[machine.name] = told["time_s"] - before
            found[machine.name] = told
        except NetdflError as error:
            silent[machine.name] = str(error)

    try:
        await asyncio.gather(*map(ask, machines))
        there = [machine for machine in machines if machine.name in found]
        measured = sorted((await measure(there)).items())
        ways: list[Mapping[str, Any]] = [{"src": src, "dst": dst, **told} for (src, dst), told in measured]
        ways += await asyncio.gather(*map(_to_here, there))
    finally:
        for machine in machines:
            await machine.aclose(0)
        await engine.aclose()
    order = {name: found[name] for name in (HERE, *offers) if name in found}
    return MachineFacts(order, ahead_s, ways, silent)


async def _to_here(machine: Machine) -> Mapping[str, Any]:
    """Measure the round trip from a machine to this one, where the supervisor would run."""
    token = token_hex(16)
    try:
        with MeasurementServer("::" if ":" in machine.address else "0.0.0.0", token) as served:
            threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            target = {HERE: (address_towards(machine.address), served.port)}
            asked = {"what": "round_trip_s", "token": token, "targets": target}
            trip = (await machine.look({"measure": asked}))["measured"][HERE]
            served.shutdown()
    except NetdflError as error:
        trip = str(error)
    return {"src": machine.name, "dst": HERE, "round_trip_s": trip}


def worlds_here(here: Mapping[str, Any]) -> dict[str, str]:
    """Return the reason why each world can't run on this machine; empty if it can."""
    has = here["commands"]
    return {
        "simulated": "",
        "processes": "",
        "namespaces": _namespaces(here),
        "containers": _containers(),
        "slurm": ""
        if os.environ.get("SLURM_JOB_NODELIST")
        else "no Slurm allocation: salloc, or netdfl sbatch"
        if has["srun"]
        else "no Slurm here: there is no command srun",
        "ray": "" if here["ray"] else f"Ray is not installed: {pip_install('netdfl[ray]')}",
    }


def _namespaces(here: Mapping[str, Any]) -> str:
    lacks = [name for name, there in (("root", here["root"]), ("/dev/net/tun", here["tun"])) if not there]
    lacks += [name for name in ("ip", "tc") if shutil.which(name) is None]
    return f"it needs {', '.join(lacks)}" if lacks else ""


def _containers() -> str:
    from netdfl.worlds.containers.docker import Docker

    try:
        asyncio.run(Docker.find())
    except NetdflError as error:
        return str(error)
    return ""
