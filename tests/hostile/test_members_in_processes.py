"""Members that err in real worlds: refused, counted and told as in the simulated one, and the others go on as there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

import netdfl
from tests.hostile.table import FIGURES
from tests.namespaces.udp_probe import missing as no_namespaces

ERRORS = {
    "sgp": ("w -1", "w 0", "w 1000", "w text", "huge", "1e100"),
    "dpsgd": ("too short", "whole numbers", "other floats", "no array", "huge", "1e300", "to each another"),
    "choco_sgd": ("1e300",),
}
SAMPLED = {
    ("sgp", "w 1000", "processes", False),
    ("dpsgd", "too short", "processes", True),
}


def rows() -> Iterator[ParameterSet]:
    for world in ("processes", "namespaces"):
        for tls in (False, True):
            for algorithm, errors in ERRORS.items():
                for error in errors:
                    row = (algorithm, error, world, tls)
                    marks = [] if row in SAMPLED else [pytest.mark.soak]
                    yield pytest.param(
                        *row, marks=marks, id=f"{world}-{'TLS' if tls else 'plain text'}-{algorithm}-{error}"
                    )


@pytest.mark.parametrize(("algorithm", "error", "world", "tls"), list(rows()))
def test_an_error_is_told_as_in_the_simulated_world(
    algorithm: str, error: str, world: str, tls: bool, tmp_path: Path
) -> None:
    if world == "namespaces" and (reason := no_namespaces()):
        pytest.skip(reason)
    scenario = {
        "schema": "netdfl/1",
        "name": "erring",
        "nodes": 5,
        "rounds": 8,
        "task": {"kind": "consensus", "dim": 50},
        "algorithm": {"name": f"tests.hostile.erring:{algorithm}", "error": error},
        "topology": {"kind": "random_push", "out_neighbors": 2} if algorithm == "sgp" else "ring",
        "wait": {"deadline": "none"},
        "links": {"default": {"latency": "5ms"}},
    }
    real = {"kind": world, "tls": tls, "fidelity": {"relative": 100, "slack": "100s"}}
    ours = netdfl.run(scenario | {"world": real}, out=tmp_path / "real", page=False).result
    theirs = netdfl.run(scenario | {"world": {"kind": "simulated"}}, out=tmp_path / "simulated", page=False).result
    first = {"what": "the first message of a sender that was refused, at whichever receiver"}
    assert [each | first for each in ours["refused"]] == [each | first for each in theirs["refused"]]
    assert [ours[each] for each in FIGURES] == [theirs[each] for each in FIGURES]
    assert (ours["verdict"], ours["died"]) == (theirs["verdict"], theirs["died"])
