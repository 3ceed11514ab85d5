"""The catalog of worlds: the abilities of each, and the function that creates it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from netdfl.core.errors import InputError
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.world import (
    ContainersOptions,
    NamespacesOptions,
    ProcessesOptions,
    RayOptions,
    SimulatedOptions,
    SlurmOptions,
    WorldOptions,
)
from netdfl.worlds.base import World, WorldConfig

if TYPE_CHECKING:
    from netdfl.worlds.machines.machine import Engine


@dataclass(frozen=True, kw_only=True)
class WorldEntry:
    """A row in the catalog of worlds. A user's own world is an object of this class, too.

    Attributes:
        options: the class of the scenario's options for this world.
        make: creates the world.
        repeatable: whether the same scenario gives the same run, bit for bit.
        resumable: whether a run that was killed can be resumed.
        engine: creates the provider of the world's machines, for commands that inspect them without a run; None: none.
    """

    options: type[WorldOptions]
    make: Callable[[WorldConfig], World]
    repeatable: bool = False
    resumable: bool = False
    engine: Callable[[Scenario], Engine] | None = None


def _simulated(setting: WorldConfig) -> World:
    from netdfl.worlds.simulated.world import SimulatedWorld

    return SimulatedWorld(setting)


def _quiet() -> None:
    """Keep gRPC from printing the TLS connections that it refused, which netdfl records.

    Call this before importing gRPC.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def _processes(setting: WorldConfig) -> World:
    _quiet()
    from netdfl.worlds.processes import ProcessesWorld

    return ProcessesWorld(setting)


def _namespaces(setting: WorldConfig) -> World:
    _quiet()
    from netdfl.worlds.namespaces import NamespacesWorld

    return NamespacesWorld(setting)


def _containers(setting: WorldConfig) -> World:
    from netdfl.worlds.containers.world import ContainersWorld

    return ContainersWorld(setting)


def _machines(engine: Callable[[Scenario], Engine], setting: WorldConfig) -> World:
    _quiet()
    from netdfl.worlds.machines.world import MachinesWorld

    return MachinesWorld(setting, engine(setting.scenario))


def _slurm_machines(scenario: Scenario) -> Engine:
    from netdfl.worlds.machines.slurm import Slurm

    assert isinstance(scenario.world, SlurmOptions)
    return Slurm(scenario.world)


def _ray_machines(scenario: Scenario) -> Engine:
    from netdfl.worlds.machines.ray import make

    assert isinstance(scenario.world, RayOptions)
    return make(scenario.world, scenario.num_nodes)


WORLDS = {
    "simulated": WorldEntry(options=SimulatedOptions, make=_simulated, repeatable=True, resumable=True),
    "processes": WorldEntry(options=ProcessesOptions, make=_processes, resumable=True),
    "namespaces": WorldEntry(options=NamespacesOptions, make=_namespaces, resumable=True),
    "containers": WorldEntry(options=ContainersOptions, make=_containers),
    "slurm": WorldEntry(
        options=SlurmOptions, make=partial(_machines, _slurm_machines), resumable=True, engine=_slurm_machines
    ),
    "ray": WorldEntry(options=RayOptions, make=partial(_machines, _ray_machines), resumable=True, engine=_ray_machines),
}


def entry_of(scenario: Scenario) -> WorldEntry:
    """Return the catalog entry of the world that `scenario` names. Raises InputError if there is none."""
    kind, own = scenario.world.kind, scenario.world.entry
    if own is not None:
        if not isinstance(own, WorldEntry):
            raise InputError(f"world {kind!r} is a {type(own).__name__}; name a netdfl.worlds.catalog.WorldEntry")
        return own
    if kind not in WORLDS:
        raise InputError(f"world {kind!r} can't be run here; use one of {', '.join(WORLDS)}")
    return WORLDS[kind]
