"""The scenarios that ship with netdfl, by name: `quickstart`, `faults/crash`, `studies/loss`."""

from __future__ import annotations

import difflib
from functools import cache
from pathlib import Path

from netdfl.core.files import shipped

ENDINGS = (".yaml", ".yml", ".json")
"""The endings of the files of scenarios and studies."""


@cache
def shipped_scenarios() -> dict[str, Path]:
    """Return each shipped scenario and study, by its path in `scenarios` without the file ending."""
    root = shipped("scenarios")
    files = sorted(root.rglob("*.yaml"), key=lambda file: (len(file.relative_to(root).parts), file))
    return {file.relative_to(root).with_suffix("").as_posix(): file for file in files}


def find_scenario(given: str | Path) -> Path:
    """Return the file at `given` or, if there is none, the shipped scenario of this name, else the path `given`."""
    path = Path(given)
    return path if path.is_file() else shipped_scenarios().get(path.as_posix(), path)


def remedy_for(given: str) -> str:
    """Return the remedy for a path that is neither a file nor the name of a shipped scenario."""
    near = [repr(found) for found in [_near_in_folder(Path(given))] if found]
    names = difflib.get_close_matches(_as_name(given), list(shipped_scenarios()), n=1, cutoff=0.7)
    near += [f"{name!r}, which comes with netdfl" for name in names]
    if near:
        return f"did you mean {', or '.join(near)}?"
    return "check the path; `netdfl list scenarios` has those that come with netdfl"


def _near_in_folder(given: Path) -> str:
    """Return the file in the folder of `given` with the most similar name; an empty text if there is none."""
    try:
        files = {file.stem: file for file in sorted(given.parent.iterdir()) if file.suffix in ENDINGS}
    except (OSError, ValueError):
        return ""
    near = difflib.get_close_matches(given.stem if given.suffix in ENDINGS else given.name, list(files), 1, 0.7)
    return str(files[near[0]]) if near else ""


def _as_name(given: str) -> str:
    """Return a path below a folder `scenarios` as the name of a shipped scenario: without folder and file ending."""
    path = Path(given)
    name = path.with_suffix("") if path.suffix in ENDINGS else path
    parts = name.parts
    return "/".join(parts[parts.index("scenarios") + 1 :] if "scenarios" in parts else parts)


def first_sentence(file: Path) -> str:
    """Return the first sentence of the comment at the beginning of a scenario file."""
    words: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#") or (words and line == "#"):
            break
        if "yaml-language-server" not in line:
            words.append(line.lstrip("# "))
    head, stop, _ = " ".join(words).partition(". ")
    return head + "." * bool(stop)
