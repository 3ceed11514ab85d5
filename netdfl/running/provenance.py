"""The sources of a run: its scenario, the user's modules and the files that it names, and whether they have changed.

A run is replayed, resumed, or kept as a finished one of a sweep only while its sources are as they were: otherwise two
experiments would be mixed in one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict
from xxhash import xxh3_128

from netdfl.core.errors import InputError
from netdfl.core.files import version_of
from netdfl.record.directory import RunDirectory
from netdfl.record.forms import read_form
from netdfl.scenario.checks.trials import own_parts
from netdfl.scenario.loading.identity import named_files
from netdfl.scenario.model.plugins import imported_from
from netdfl.scenario.model.schema import Scenario

PROVENANCE = "provenance.json"
SCHEMA = "netdfl/provenance/1"
_VERSIONS = ("netdfl", "torch", "numpy")
_PART = 1 << 24


class Provenance(TypedDict):
    """The JSON keys of `provenance.json`: versions of packages, and hashes of the scenario, modules and named files.

    Runs of netdfl 0.2.0 and before have no `files`.
    """

    versions: dict[str, str]
    scenario: str
    modules: dict[str, str]
    files: NotRequired[dict[str, str]]


_FORM: TypeAdapter[Provenance] = TypeAdapter(Provenance)


def write_provenance(scenario: Scenario, directory: RunDirectory) -> None:
    """Write the provenance of the run in `directory`, which must hold its scenario already."""
    made: Provenance = {
        "versions": _versions(),
        "scenario": _digest(directory.path / "scenario.yaml"),
        "modules": {str(file): _digest(file) for file in _modules(scenario) if file.is_file()},
        "files": {str(file): _digest(file) for file in named_files(scenario)},
    }
    directory.write_json(PROVENANCE, {"schema": SCHEMA, **made})


def _modules(scenario: Scenario) -> list[Path]:
    """Return the files of the user's modules that the scenario's parts came from, with their helpers beside them.

    Modules of the working directory or of the Python path are imported as any others, and so found by their names.
    """
    came = Path.cwd() if scenario.file is None else scenario.file.parent
    found = set(imported_from(str(came)))
    loaded = {name: Path(file) for name, module in list(sys.modules.items()) if (file := _file_of(module))}
    for _, part in own_parts(scenario):
        top = part.kind.partition(":")[0].partition(".")[0]
        home = loaded.get(top)
        if home is None or top == "netdfl" or "site-packages" in home.parts:
            continue
        folder, is_package = home.parent, home.name == "__init__.py"
        for name, path in loaded.items():
            if name != "__main__" and (path.is_relative_to(folder) if is_package else path.parent == folder):
                found.add(path)
    return sorted(found)


def _file_of(module: object) -> str | None:
    found: str | None = getattr(module, "__file__", None)
    return found


def what_changed(run: Path) -> list[str]:
    """Return what has changed of the sources of the run in the directory `run`, as text; none if nothing is known.

    Raises:
        InputError: `provenance.json` is damaged.
    """
    return [*what_was_edited(run), *(f"{file} is gone" for file, _ in _sources(run) if not file.is_file())]


def what_was_edited(run: Path) -> list[str]:
    """Return `what_changed` without files that are gone, as those are that another machine had for the run alone."""
    return [
        f"its {file.name} was edited" if file.parent == run else f"{file} was edited"
        for file, digest in _sources(run)
        if file.is_file() and _digest(file) != digest
    ]


def refuse_changed(run: Path, doing: str, *, gone: bool = True) -> None:
    """Raise InputError if sources of the run in the directory `run` have changed, so that `doing` would mix two runs.

    `doing` is the participle of what is asked for, such as `replayed`. With `gone`, sources must be where they were.
    """
    if changed := what_changed(run) if gone else what_was_edited(run):
        raise InputError(
            f"{run} can't be {doing}, for it would be another run: {'; '.join(changed)}. "
            "Put back what it was made from, or run it anew"
        )


def other_versions(run: Path) -> list[str]:
    """Return a text for each package whose version differs from the one the run used: `torch is 2.11, and was 2.12`."""
    made = read_form(run / PROVENANCE, _FORM)
    was: Mapping[str, str] = {} if made is None else made["versions"]
    now = _versions()
    return [f"{name} is {now[name]}, and was {was[name]}" for name in now if was.get(name, now[name]) != now[name]]


def _sources(run: Path) -> Iterator[tuple[Path, str]]:
    """Yield each recorded source of the run, with its digest."""
    made = read_form(run / PROVENANCE, _FORM)
    if made is None:
        return
    yield run / "scenario.yaml", made["scenario"]
    for name, digest in {**made["modules"], **made.get("files", {})}.items():
        yield Path(name), digest


def _digest(file: Path) -> str:
    about = file.stat()
    return _digest_of(file, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=1024)
def _digest_of(file: Path, mtime_ns: int, nbytes: int) -> str:
    """Return the digest of a file that was last changed at this time, once for all runs that name it."""
    found = xxh3_128()
    with file.open("rb") as opened:
        while part := opened.read(_PART):
            found.update(part)
    return found.hexdigest()


def _versions() -> dict[str, str]:
    found = {name: version_of(name) for name in _VERSIONS}
    return {name: version for name, version in found.items() if version is not None}
