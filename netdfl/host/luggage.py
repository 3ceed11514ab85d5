"""What another machine needs of this one's disk: the scenario, the user's own modules, the files that it names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from netdfl.scenario.loading.resolved import to_yaml
from netdfl.scenario.model.plugins import files_beside
from netdfl.scenario.model.schema import Scenario

SCENARIO, NAMED = "scenario.yaml", "files"


def pack(scenario: Scenario) -> dict[str, bytes]:
    """Files by their names in the folder that they are for; the scenario in it names what lies beside it."""
    files: dict[str, bytes] = {}
    text = to_yaml(scenario)
    for number, path in enumerate(named_files(scenario)):
        name = f"{NAMED}/{number}-{path.name}"
        files[name] = path.read_bytes()
        text = text.replace(str(path), name)
    return files | {SCENARIO: text.encode()} | {name: path.read_bytes() for name, path in _modules(scenario)}


def unpack(files: Mapping[str, bytes], folder: Path) -> None:
    """Lay what was packed into `folder`."""
    for name, content in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def named_files(scenario: Scenario) -> list[Path]:
    """The files that `scenario` names, like traces; absolute."""
    return sorted(set(_paths(json.loads(scenario.model_dump_json()))))


def _paths(value: object) -> Iterator[Path]:
    if isinstance(value, str) and value.startswith("/") and "\n" not in value and Path(value).is_file():
        yield Path(value)
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _paths(item)


def _modules(scenario: Scenario) -> Iterator[tuple[str, Path]]:
    for part in [] if scenario.file is None else files_beside(scenario.file):
        files = (file for file in sorted(part.rglob("*")) if file.is_file() and "__pycache__" not in file.parts)
        for file in files if part.is_dir() else [part]:
            yield str(file.relative_to(part.parent)), file
