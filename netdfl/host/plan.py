"""The run plan and the commands for processes that a supervisor starts.

A process on another machine also gets files of the supervisor's disk: the scenario, the user's own modules, and the
files that the scenario names.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter

from netdfl.core.control import Life
from netdfl.core.errors import MachineError
from netdfl.core.types import NodeId
from netdfl.scenario.loading.resolved import plain_to_yaml, to_plain
from netdfl.scenario.loading.sources import modules_of, named_files
from netdfl.scenario.model.plugins import files_beside
from netdfl.scenario.model.schema import Scenario
from netdfl.transport.security.credentials import Credentials

if TYPE_CHECKING:
    from netdfl.host.blueprint import Blueprint

T = TypeVar("T")
SCENARIO, NAMED = "scenario.yaml", "files"


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """The facts that a process needs to run nodes of a fleet.

    Attributes:
        directory: the directory to which the process writes, with the resolved scenario.
        scenario_directory: the directory of the user's own parts.
        control: the supervisor's address.
        secret: the secret of the run.
        run_id: the id of the run.
        scenario_hash: the hash of the scenario.
        shares_disk: whether the process shares a disk with the supervisor; if not, files travel over the control plane.
        shares_clock: whether it shares a clock with the supervisor; if not, it asks for the supervisor's time.
        share_memory: nodes that are forked from one process and share memory for large message bodies.
        luggage: files for a process that can't read the supervisor's disk: contents in base64, by name.
        tells_versions: whether nodes report their versions of packages, which may differ from the supervisor's.
    """

    directory: str
    scenario_directory: str
    control: str
    secret: str = field(repr=False)
    run_id: str
    scenario_hash: str
    shares_disk: bool = True
    shares_clock: bool = True
    share_memory: tuple[NodeId, ...] = ()
    luggage: Mapping[str, str] = field(default_factory=dict)
    tells_versions: bool = False

    def settled(self, folder: Path) -> RunPlan:
        """Unpack the files in `luggage` into `folder`; return a plan for a process that reads and writes only there."""
        unpack({name: b64decode(content) for name, content in self.luggage.items()}, folder)
        (folder / "snapshots").mkdir()
        return replace(self, directory=str(folder), scenario_directory=str(folder), luggage={})

    def blueprint(self) -> Blueprint:
        """Build the parts that all nodes share. Raises InputError."""
        from netdfl.host.blueprint import Blueprint
        from netdfl.scenario.load import loads

        text = (Path(self.directory) / "scenario.yaml").read_text(encoding="utf-8")
        return Blueprint.of(loads(text, file="scenario.yaml", directory=self.scenario_directory))


@dataclass(frozen=True, kw_only=True)
class Command:
    """The command to a process to run some nodes, each from one start to its end or crash.

    Attributes:
        nodes: the nodes; -1 is the evaluator.
        device: the device for their computing.
        life: the number of restarts before, and how the nodes rejoin after a crash.
        address: the address at which they listen.
        port: the port at which they listen; 0: any free one.
        namespace: the network namespace that the process enters; None: it stays in its own.
        credentials: the nodes' keys for mutual TLS, if they use it; sent to the process by a pipe, never in a file.
    """

    nodes: tuple[NodeId, ...]
    device: str = "cpu"
    life: Life = field(default_factory=Life)
    address: str = "127.0.0.1"
    port: int = 0
    namespace: str | None = None
    credentials: Mapping[NodeId, Credentials] = field(default_factory=dict)


def read(kind: type[T], plain: object) -> T:
    """Convert plain data to a `RunPlan` or a `Command`. Raises ValueError if the data do not fit."""
    return TypeAdapter(kind).validate_python(plain)


def spread(device: str, num_gpus: int, num_nodes: int) -> list[str]:
    """Return one device per node: `auto` assigns the GPUs in turn if there are any, else the CPU.

    Raises:
        MachineError: the scenario asks for a GPU that this machine does not have.
    """
    if device == "cpu" or (device == "auto" and num_gpus == 0):
        return ["cpu"] * num_nodes
    wanted = int(device.removeprefix("cuda:")) if device.startswith("cuda:") else None
    if num_gpus == 0 or (wanted is not None and wanted >= num_gpus):
        raise MachineError(
            f"task.device is {device!r}, and this machine has {num_gpus} GPUs that PyTorch can use; "
            "write auto or cpu, or install a CUDA build of PyTorch"
        )
    return [f"cuda:{i % num_gpus if wanted is None else wanted}" for i in range(num_nodes)]


def pack(scenario: Scenario) -> dict[str, bytes]:
    """Return the contents of the files that another machine needs, by file name.

    These are the scenario, the files that it names, and the user's modules. The scenario in the result names the files
    by their new names.
    """
    names = {str(path): f"{NAMED}/{number}-{path.name}" for number, path in enumerate(named_files(scenario))}
    files = {name: Path(path).read_bytes() for path, name in names.items()}
    modules = {name: path.read_bytes() for name, path in carried_modules(scenario).items()}
    return files | {SCENARIO: plain_to_yaml(renamed(to_plain(scenario), names)).encode()} | modules


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return a plain value, such as a scenario as a mapping, with the texts in `names` replaced, at any depth."""
    if isinstance(value, dict):
        return {key: renamed(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [renamed(inner, names) for inner in value]
    return names.get(value, value) if isinstance(value, str) else value


def unpack(files: Mapping[str, bytes], folder: Path) -> None:
    """Write packed files into `folder`."""
    for name, content in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def carried_modules(scenario: Scenario) -> dict[str, Path]:
    """Return the user's modules and the files beside them in packages: local paths by their names elsewhere."""
    files = {}
    for part in files_beside(str(scenario.folder)) if scenario.file is not None else ():
        inside = (file for file in sorted(part.rglob("*")) if file.is_file() and "__pycache__" not in file.parts)
        files.update({str(file.relative_to(part.parent)): file for file in (inside if part.is_dir() else [part])})
    for name, file in modules_of(scenario).items():
        end = "/__init__.py" if file.name == "__init__.py" else ".py"
        files.setdefault(name.replace(".", "/") + end, file)
    return files
