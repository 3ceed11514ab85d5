"""What a run was made from: `provenance.json`, so that it is known later whether it can be played again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter
from typing_extensions import TypedDict
from xxhash import xxh3_128_hexdigest

from netdfl.core.files import read_plain
from netdfl.core.installed import version_of
from netdfl.record.forms import read_form
from netdfl.record.run import Run, RunDirectory
from netdfl.scenario.model.plugins import imported_from
from netdfl.scenario.model.schema import Scenario

PROVENANCE = "provenance.json"
SCHEMA = "netdfl/provenance/1"
_VERSIONS = ("netdfl", "torch", "numpy")


class Provenance(TypedDict):
    """`provenance.json`: versions of packages, and digests of the resolved scenario and of the user's own modules."""

    versions: dict[str, str]
    scenario: str
    modules: dict[str, str]


_FORM: TypeAdapter[Provenance] = TypeAdapter(Provenance)


def write_provenance(scenario: Scenario, directory: RunDirectory) -> None:
    """Write what the run in `directory`, whose scenario lies there already, is made from."""
    came = Path.cwd() if scenario.file is None else scenario.file.parent
    modules = {str(file): _digest(file) for file in imported_from(str(came)) if file.is_file()}
    text = read_plain(directory.path / "scenario.yaml")
    made = {"versions": _versions(), "scenario": xxh3_128_hexdigest(text.encode()), "modules": modules}
    directory.write_json(PROVENANCE, {"schema": SCHEMA} | made)


def what_changed(run: Run) -> list[str]:
    """What is not as it was when `run` was made, in words; nothing where that is not known.

    Raises:
        InputError: `provenance.json` is damaged.
    """
    made = read_form(run.path / PROVENANCE, _FORM)
    if made is None:
        return []
    changed = (
        [] if made["scenario"] == xxh3_128_hexdigest(run.scenario_text.encode()) else ["its scenario.yaml was edited"]
    )
    for name, digest in made["modules"].items():
        file = Path(name)
        if not file.is_file():
            changed.append(f"{file} is gone")
        elif _digest(file) != digest:
            changed.append(f"{file} was edited")
    return changed


def other_versions(run: Run) -> list[str]:
    """Which packages are not of the version that made `run`: `torch is 2.11, and was 2.12`."""
    made = read_form(run.path / PROVENANCE, _FORM)
    was: Mapping[str, str] = {} if made is None else made["versions"]
    now = _versions()
    return [f"{name} is {now[name]}, and was {was[name]}" for name in now if was.get(name, now[name]) != now[name]]


def _digest(file: Path) -> str:
    return xxh3_128_hexdigest(file.read_bytes())


def _versions() -> dict[str, str]:
    found = {name: version_of(name) for name in _VERSIONS}
    return {name: version for name, version in found.items() if version is not None}
