"""The software versions of a node: which differences change numerical results, and which are only reported.

Numerical results depend on netdfl, whose code is the algorithm; on Python's minor version (from 3.12 on `sum` adds
floats with a correction); on numpy, which draws the data's shares and sums vectors; and, in training, on the public
version of PyTorch: its builds (`+cpu`) and kinds of processors are not compared. Network libraries only carry bytes.
The effect of two states of netdfl's code with one version is unknown; the difference is reported.

Each machine imports the user's modules, and loads and divides the data, on its own. So digests of the modules and of
the shares are compared, too, as if they were versions: where modules differ, two nodes would run two algorithms; where
files differ, or a user's part draws without a seed, two clients would train on the same examples.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from netdfl.core.files import PACKAGE, version_of

Versions: TypeAlias = Mapping[str, str]
"""Software versions by the name of the software; a missing one is unknown, or does not matter."""
Choice: TypeAlias = Callable[[Versions, Versions], list[str]]
CODE, DATA, MODULES, PYTHON, TORCH = "code", "data", "modules", "python", "torch"
PACKAGES = ("netdfl", TORCH, "numpy", "grpcio", "protobuf", "cryptography")
NAMES = (PYTHON, *PACKAGES, CODE, MODULES, DATA)
DECIDING = ("netdfl", PYTHON, TORCH, "numpy", MODULES, DATA)
"""The names of the software on which numerical results depend."""
REMEDY = "install the same versions on all"
SAME_MODULES = "give all machines the same modules; whoever edits one while a fleet runs starts the fleet anew"
SAME_DATA = "give all machines the same files, and draw nothing without a seed"
MOST_LETTERS = 40


@cache
def versions_here(*, trains: bool) -> Versions:
    """Return the software versions in this process; PyTorch's only with `trains`, because nothing else needs it."""
    found = {name: version_of(name) for name in PACKAGES if trains or name != TORCH}
    known = {name: version for name, version in found.items() if version is not None}
    return MappingProxyType({PYTHON: platform.python_version(), **known, CODE: source_hash()})


@cache
def source_hash() -> str:
    """Return a hash of netdfl's source code, which tells apart two states of the code with one version number."""
    found = blake2b(digest_size=6)
    for file in sorted(PACKAGE.rglob("*.py")):
        name = file.relative_to(PACKAGE).as_posix()
        if not name.startswith("shipped/"):  # what a wheel holds beside the code
            found.update(name.encode() + b"\0" + file.read_bytes())
    return found.hexdigest()


def taken(said: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of known software among `said`, which another node sent, as texts that are safe to print."""
    return {name: "".join(filter(str.isprintable, said[name]))[:MOST_LETTERS] for name in NAMES if name in said}


def deciding(theirs: Versions, ours: Versions) -> list[str]:
    """Return the names of the software whose versions differ so that numerical results change.

    `theirs` and `ours` are the versions of two nodes or processes. A version that one side lacks counts as equal.
    """
    return [name for name in _both(theirs, ours) if name in DECIDING and _form(name, theirs) != _form(name, ours)]


def only_told(theirs: Versions, ours: Versions) -> list[str]:
    """Return the names of the software whose versions differ without a known effect on numerical results."""
    changes = deciding(theirs, ours)
    differ = [name for name in _both(theirs, ours) if theirs[name] != ours[name] and name not in changes]
    return [name for name in differ if name != PYTHON]  # patches of Python differ everywhere, and are recorded


def objection(who: str, theirs: Versions, where: str, ours: Versions) -> str:
    """Return a sentence why the node `who` can't join a fleet; empty if numerical results would be the same.

    `theirs` are its versions, `ours` the versions of `where`, the name of a node or process of the fleet.
    """
    names = deciding(theirs, ours)
    if not names:
        return ""
    if set(names) <= {MODULES, DATA} and MODULES in names:
        return f"{who} has other modules of your own than {where}: {SAME_MODULES}"
    if names == [DATA]:
        return f"{who} shares out other examples than {where}: {SAME_DATA}"
    differ = f"{_listed(names, theirs)}, {where} on {_listed(names, ours)}"
    return f"{who} is on {differ}: their digits would differ; {REMEDY}"


def told(others: Mapping[str, Versions], where: str, ours: Versions, *choices: Choice) -> Iterator[str]:
    """Yield sentences on the software versions in which nodes differ from `where`, and on nodes that sent none.

    Args:
        others: the versions of each node, by its name.
        where: a name for the node or process that they are compared with.
        ours: the versions of `where`.
        choices: select the differences to report; by default all are reported.
    """
    if silent := [who for who, theirs in others.items() if not theirs]:
        yield f"{_some(silent)} did not say on what versions, as older ones of netdfl: digits may differ"
    for choose in choices or (deciding, only_told):
        groups: dict[str, list[str]] = {}
        for who, theirs in others.items():
            if names := choose(theirs, ours):
                groups.setdefault(f"{_listed(names, theirs)}, {where} on {_listed(names, ours)}", []).append(who)
        what = "their digits differ" if choose is deciding else "no digit is known to depend on that"
        yield from (f"{_some(who)} {_be(who)} on {differ}: {what}" for differ, who in groups.items())


class VersionGroup(NamedTuple):
    """Nodes that have the same versions of all software."""

    nodes: list[int]
    versions: dict[str, str]


def grouped(software: Mapping[int, Versions]) -> list[VersionGroup]:
    """Group nodes that have equal versions, the largest group first."""
    groups: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for node, versions in sorted(software.items()):
        groups.setdefault(tuple(sorted(versions.items())), []).append(node)
    ordered = sorted(groups.items(), key=lambda each: -len(each[1]))
    return [VersionGroup(nodes, dict(versions)) for versions, nodes in ordered]


def mixed(software: Mapping[int, Versions], *choices: Choice) -> Iterator[str]:
    """Yield a sentence for each software version in which nodes differ from the largest group of equal nodes.

    `choices` select the differences to report; by default all are reported.
    """
    groups = grouped(software)
    if len(groups) < 2:
        return
    most = next((each for each in groups if each.versions), groups[0])
    where = f"node {most.nodes[0]}" if len(most.nodes) == 1 else f"nodes {_some(list(map(str, most.nodes)))}"
    others = {f"node {node}": theirs for node, theirs in sorted(software.items()) if node not in most.nodes}
    yield from told(others, where, most.versions, *choices)


def _both(theirs: Versions, ours: Versions) -> Sequence[str]:
    return [name for name in NAMES if theirs.get(name) and ours.get(name)]


def _form(name: str, versions: Versions) -> str:
    """Return the part of the version of software `name` that decides whether numerical results are the same."""
    public = versions[name].partition("+")[0]
    return ".".join(public.split(".")[:2]) if name == PYTHON else public


def _listed(names: Iterable[str], versions: Versions) -> str:
    return ", ".join(f"{name} {versions[name]}" for name in names)


def _some(who: Sequence[str], most: int = 5) -> str:
    return ", ".join(who[:most]) + (f" and {len(who) - most} more" if who[most:] else "")


def _be(who: Sequence[str]) -> str:
    return "is" if len(who) == 1 else "are"
