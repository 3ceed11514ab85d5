"""Docker on a machine that others use too: what they remove while a run begins does not end it. Docker is a script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netdfl.core.errors import MachineError
from netdfl.worlds.containers.docker import Docker
from netdfl.worlds.containers.world import SUPERVISOR, sweep, this_supervisor

DOCKER = """#!/bin/sh
# $HERE/containers and $HERE/networks list what there is; inspecting what is in $HERE/going removes it first
kind=containers
case "$*" in *network*) kind=networks;; esac
case "$1 $2" in
"ps "*|"network ls") cat "$HERE/$kind";;
"inspect "*)
    shift 2
    for id in "$@"; do
        if grep -qx "$id" "$HERE/going"; then
            sed -i "/^$id$/d" "$HERE/containers" "$HERE/networks"
        fi
    done
    for id in "$@"; do
        grep -qx "$id" "$HERE/$kind" || { echo "Error: No such object: $id" >&2; exit 1; }
    done
    cat "$HERE/data";;
*) echo "$*" >> "$HERE/removed"; exit "$(cat "$HERE/fails")";;
esac
"""


class Machine:
    """What a machine's Docker says, and what it was told to remove."""

    def __init__(self, here: Path) -> None:
        self.here = here
        for name, text in {"containers": "", "networks": "", "going": "none", "data": "[]", "fails": "0"}.items():
            self.say(name, text)
        self.say("removed", "")

    def say(self, name: str, text: str) -> None:
        (self.here / name).write_text(text)

    @property
    def removed(self) -> list[str]:
        return (self.here / "removed").read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    monkeypatch.setenv("HERE", str(tmp_path))
    monkeypatch.setenv("PATH", str(docker.parent), prepend=":")
    return Machine(tmp_path)


def of(supervisor: str) -> str:
    labels = {SUPERVISOR: supervisor}
    return json.dumps([{"Name": "/left", "Labels": labels, "Config": {"Labels": labels}}])


GONE = this_supervisor().rsplit("/", 1)[0] + "/never"


@pytest.mark.parametrize("kind", ["containers", "networks"])
async def test_what_others_remove_meanwhile_is_left_out(kind: str, machine: Machine) -> None:
    machine.say(kind, "aa\nbb\ncc\n")
    machine.say("going", "bb\ncc\n")
    machine.say("data", of(GONE))
    assert len(await getattr(Docker([]), kind)("label")) == 1
    assert (machine.here / kind).read_text() == "aa\n"


async def test_nothing_is_left_if_others_remove_all(machine: Machine) -> None:
    machine.say("containers", "aa\n")
    machine.say("going", "aa\n")
    assert await Docker([]).containers("label") == []


async def test_an_error_of_another_kind_is_told(machine: Machine) -> None:
    machine.say("containers", "aa\n")
    machine.say("data", "[]")
    (machine.here / "data").unlink()
    with pytest.raises(MachineError, match="docker inspect"):
        await Docker([]).containers("label")


async def test_what_a_killed_run_left_is_removed_and_a_living_ones_is_not(machine: Machine) -> None:
    notes: list[str] = []
    machine.say("containers", "aa\n")
    machine.say("data", of(this_supervisor()))
    await sweep(Docker([]), notes.append)
    assert (notes, machine.removed) == ([], [])
    machine.say("data", of(GONE))
    await sweep(Docker([]), notes.append)
    assert (notes, machine.removed) == (
        ["removed what a killed run had left: 1 containers, 0 networks"],
        ["rm --force left"],
    )


async def test_what_others_remove_first_does_not_end_a_run(machine: Machine) -> None:
    notes: list[str] = []
    machine.say("containers", "aa\n")
    machine.say("data", of(GONE))
    machine.say("fails", "1")
    await sweep(Docker([]), notes.append)
    (note,) = notes
    assert note.startswith("what a killed run had left could not all be removed")
