"""The packages and versions in the image of a node: exactly those that this scenario's nodes import.

They follow from netdfl's own requirements, so other installed packages have no influence.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING

from netdfl.core.errors import MachineError
from netdfl.scenario.loading.sources import packages_of, search_modules
from netdfl.scenario.model.schema import Scenario

if TYPE_CHECKING:
    from packaging.requirements import Requirement

SPARE = frozenset(("torch", "scikit-learn", "duckdb", "matplotlib", "jinja2", "packaging"))
"""Requirements of netdfl that a node needs only if a table below or a module of the user asks for them.

netdfl reads one file of scikit-learn, which is copied into the image.
"""
TRAINING = ("torch",)
BY_DATASET: Mapping[str, Sequence[str]] = {
    "table": ("duckdb",),
    "client_files": ("duckdb",),
    "image_folder": ("pillow",),
    "hugging_face": ("datasets",),
}
LIGHT = frozenset(f"netdfl.{name}" for name in ("core", "topology", "links", "transport", "packets", "scenario"))
"""The packages of netdfl that never import PyTorch."""
COLLECTING = ("duckdb", "matplotlib", "jinja2")
"""Packages that are needed to collect a run and write its page."""

Lookup = Callable[[str], metadata.Distribution]


@dataclass(frozen=True)
class Packages:
    """The packages to install by pip.

    Attributes:
        requirements: the requirements.
        versions: these packages and all on which they depend, as `name==version`.
    """

    requirements: Sequence[str]
    versions: Sequence[str]

    @property
    def torch(self) -> bool:
        """Whether PyTorch is among the packages to install."""
        return any(line.startswith("torch==") for line in self.versions)


def packages_for(
    scenario: Scenario, *, collects: bool = False, find: Lookup = metadata.distribution, python: str = "3.11"
) -> Packages:
    """Return the packages for the image of a node of `scenario`, on Linux with the given `python` version.

    `collects`: `netdfl collect` runs there too. `find` returns a distribution by its name; it may raise
    PackageNotFoundError. Raises MachineError if netdfl's requirements are unknown.
    """
    walk = _RequirementWalk(find, _environment(python))
    needed = list(walk.requirements("netdfl", ()))
    if not needed:
        raise MachineError(
            "what an image has to hold is not known: netdfl is imported from a folder and not installed; run "
            "`pip install -e .` there, or name an image (world.image)"
        )
    wanted = _wanted(scenario, collects=collects, closure=walk.closure([_text(each) for each in needed]))
    asked = [_text(each) for each in needed if canonical(each.name) not in SPARE or canonical(each.name) in wanted]
    named = {canonical(each.name) for each in needed}
    asked += [name for name in wanted if name not in named]  # what only comes with another package
    return Packages(sorted(asked), sorted(f"{name}=={version}" for name, version in walk.closure(asked).items()))


def canonical(name: str) -> str:
    """Return a distribution's name in its canonical spelling."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _wanted(scenario: Scenario, *, collects: bool, closure: Collection[str]) -> set[str]:
    """Return the optional packages that this scenario's nodes import.

    For imports of the user's own modules, only packages in `closure` (those on which netdfl can depend) are returned.
    """
    from netdfl.host.blueprint import needs_torch

    dataset = getattr(getattr(scenario.task, "dataset", None), "kind", "")
    wanted = {*BY_DATASET.get(dataset, ()), *(COLLECTING if collects else ())}
    imported = search_modules(scenario).others
    of_netdfl = {".".join(name.split(".")[:2]) for name in imported if name.split(".")[0] == "netdfl"}
    if needs_torch(scenario) or of_netdfl - LIGHT:
        wanted.update(TRAINING)
    return wanted | {name for name in packages_of(scenario) if name in closure}


def _environment(python: str) -> dict[str, str]:
    """Return the values for evaluating requirement markers: the image's system, not this machine's."""
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": platform.machine().replace("arm64", "aarch64"),
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }


class _RequirementWalk:
    """A search for all packages on which given ones depend, in the metadata of installed ones, for one environment."""

    def __init__(self, find: Lookup, environment: Mapping[str, str]) -> None:
        self._find, self._environment = cache(find), environment

    def requirements(self, name: str, extras: Iterable[str]) -> Iterator[Requirement]:
        """Yield the requirements of `name` with `extras`; none if it is not installed: pip will find them itself."""
        from packaging.requirements import Requirement

        try:
            lines = self._find(name).requires or []
        except metadata.PackageNotFoundError:
            return
        chosen = [{**self._environment, "extra": extra} for extra in ("", *extras)]
        for need in map(Requirement, lines):
            if need.marker is None or any(need.marker.evaluate(each) for each in chosen):
                yield need

    def closure(self, asked: Sequence[str]) -> dict[str, str]:
        """Return the packages `asked` and all on which they depend, as name: installed version without build suffix."""
        from packaging.requirements import Requirement

        found: dict[str, str] = {}
        seen: set[tuple[str, frozenset[str]]] = set()
        left = [Requirement(line) for line in asked]
        while left:
            need = left.pop()
            key = canonical(need.name), frozenset(need.extras)
            if key in seen:
                continue
            seen.add(key)
            try:
                found[key[0]] = self._find(need.name).version.partition("+")[0]
            except metadata.PackageNotFoundError:
                continue
            left.extend(self.requirements(need.name, need.extras))
        return found


def _text(need: Requirement) -> str:
    """Return a requirement as text without its marker, which has been evaluated."""
    extras = f"[{','.join(sorted(need.extras))}]" if need.extras else ""
    return f"{need.name}{extras}{need.specifier}"
