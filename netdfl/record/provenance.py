"""The provenance of a run on disk: versions of packages, and digests of its scenario, modules and named files.

Two runs of one scenario may still be two experiments: a module or a file was edited in between, or a package updated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NotRequired, TypeAlias

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from netdfl.record.forms import read_form

PROVENANCE = "provenance.json"
SCHEMA = "netdfl/provenance/1"
_DIGITS = 8


Sources: TypeAlias = Mapping[str, str]
"""The sources of a run: versions of packages, and parts of the digests of modules and named files, by their names."""


class Provenance(TypedDict):
    """The JSON keys of `provenance.json`: versions of packages, and hashes of the scenario, modules and named files.

    Runs of netdfl 0.2.0 and before have no `files`.
    """

    versions: dict[str, str]
    scenario: str
    modules: dict[str, str]
    files: NotRequired[dict[str, str]]


_FORM: TypeAdapter[Provenance] = TypeAdapter(Provenance)


def read_provenance(run: Path) -> Provenance | None:
    """Return the provenance of the run in the directory `run`; None if it has none. Raises InputError if damaged."""
    return read_form(run / PROVENANCE, _FORM)


def read_sources(run: Path) -> Sources | None:
    """Return the sources of the run in the directory `run`; None if it has no provenance.

    A file is identified by its name, because its path may differ between machines. Raises InputError if the provenance
    is damaged.
    """
    made = read_provenance(run)
    return None if made is None else dict(_sources(made))


def differing_sources(runs: Mapping[str, Sources | None]) -> dict[str, dict[str, str]]:
    """Return the modules, named files and packages in which runs differ, each with the version or digest of each run.

    `runs` has the runs' sources by name. Runs without sources are left out.
    """
    found = {name: sources for name, sources in runs.items() if sources is not None}
    differing = (each for each in dict.fromkeys(key for of in found.values() for key in of) if _differs(each, found))
    return {each: {name: of.get(each, "") for name, of in found.items()} for each in differing}


def _sources(made: Provenance) -> Iterator[tuple[str, str]]:
    yield from made["versions"].items()
    digests: dict[str, list[str]] = {}
    for path, digest in sorted({**made["modules"], **made.get("files", {})}.items()):
        digests.setdefault(Path(path).name, []).append(digest[:_DIGITS])
    yield from ((name, " ".join(sorted(each))) for name, each in digests.items())


def _differs(source: str, found: Mapping[str, Mapping[str, str]]) -> bool:
    return len({of.get(source, "") for of in found.values()}) > 1
