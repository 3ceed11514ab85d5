"""The provenance of a run: the versions of packages and the digests of the sources that it was made with.

A run is replayed, resumed, or kept as a finished one of a sweep only while its sources are as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from netdfl.core.errors import InputError
from netdfl.core.files import version_of
from netdfl.record.directory import RunDirectory
from netdfl.record.provenance import PROVENANCE, SCHEMA, Provenance, read_provenance
from netdfl.scenario.loading.sources import (
    changed_files,
    digest,
    digests,
    edited_files,
    modules_of,
    named_files,
    packages_of,
)
from netdfl.scenario.model.schema import Scenario

_VERSIONS = ("netdfl", "torch", "numpy")


def write_provenance(scenario: Scenario, directory: RunDirectory) -> None:
    """Write the provenance of the run in `directory`, which must hold its scenario already."""
    (of_scenario,) = digests([directory.path / "scenario.yaml"]).values()
    made: Provenance = {
        "versions": _versions({*_VERSIONS, *packages_of(scenario)}),
        "scenario": of_scenario,
        "modules": digests(modules_of(scenario).values()),
        "files": digests(named_files(scenario)),
    }
    directory.write_json(PROVENANCE, {"schema": SCHEMA, **made})


def what_changed(run: Path) -> list[str]:
    """Return, as texts, which sources of the run in the directory `run` are gone or edited; none if nothing is known.

    Raises:
        InputError: `provenance.json` is damaged.
    """
    return changed_files(_sources(run))


def what_was_edited(run: Path) -> list[str]:
    """Return, as texts, which sources of the run in the directory `run` were edited; files that are gone are left out.

    Files may be gone because another machine had them only for its run.
    """
    return edited_files(_sources(run))


def what_differs(run: Path, scenario: Scenario) -> list[str]:
    """Return, as texts, which sources of the run in the directory `run` would differ if `scenario` were run now.

    Modules are compared with those of the same name that `scenario` finds, as they may lie in a folder that was copied
    or moved. A module of the run that `scenario` does not find is left out if its file is gone.
    """
    made, modules = _sources(run), modules_of(scenario)
    elsewhere = {before: file for before in made if (file := _same_module(Path(before), modules)) is not None}
    edited = [f"{now} was edited" for before, now in elsewhere.items() if digest(now) != made[before]]
    return [*edited, *edited_files({name: was for name, was in made.items() if name not in elsewhere})]


def _same_module(before: Path, modules: Mapping[str, Path]) -> Path | None:
    """Return the file, among `modules`, of the module that `before` was a file of; None if there is no such module.

    The module is found by its name, which must be the end of the path `before`.
    """

    def is_same(name: str) -> bool:
        count = name.count(".") + 1 + (modules[name].name == "__init__.py")
        return before.parts[-count:] == modules[name].parts[-count:]

    return max(((name.count("."), modules[name]) for name in modules if is_same(name)), default=(0, None))[1]


def refuse_changed(run: Path, doing: str, *, gone: bool = True) -> None:
    """Raise InputError if sources of the run in the directory `run` have changed, so that `doing` would mix two runs.

    `doing` is the participle of the refused action, such as `replayed`. With `gone`, missing sources count as changed.
    """
    if changed := what_changed(run) if gone else what_was_edited(run):
        raise InputError(
            f"{run} can't be {doing}, for it would be another run: {'; '.join(changed)}. "
            "Put back what it was made from, or run it anew"
        )


def other_versions(run: Path) -> list[str]:
    """Return a text for each package of which the run used another version: `torch is 2.11, and was 2.12`."""
    made = read_provenance(run)
    was: Mapping[str, str] = {} if made is None else made["versions"]
    now = _versions(was)
    return [f"{name} is {now[name]}, and was {was[name]}" for name in now if was[name] != now[name]]


def _sources(run: Path) -> dict[str, str]:
    """Return the recorded digests of all sources of the run in the directory `run`, by file; one is the scenario."""
    made = read_provenance(run)
    if made is None:
        return {}
    return {str(run / "scenario.yaml"): made["scenario"], **made["modules"], **made.get("files", {})}


def _versions(packages: Iterable[str]) -> dict[str, str]:
    found = {name: version_of(name) for name in sorted(packages)}
    return {name: version for name, version in found.items() if version is not None}
