"""A source distribution builds a wheel with `netdfl` alone at its top, which works in an environment elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from ruamel.yaml import YAML

import netdfl

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "runs", "tests", "docs", "venv*")
BUILD = "import sys; from setuptools import build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"
USER = """\
import netdfl

scenario = netdfl.load("quickstart")
reveal_type(scenario)
netdfl.load("quickstart", on=3)
"""


class Built(NamedTuple):
    wheel: Path
    python: Path


def build(kind: str, source: Path, out: Path) -> Path:
    """Have the project's build backend make an `sdist` or a `wheel` of `source`."""
    command = [sys.executable, "-c", BUILD, f"build_{kind}", str(out)]
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(command, cwd=source, env=environment, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The wheel of the source distribution's source, in an environment that has this one's libraries and no netdfl."""
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(ROOT, folder / "checkout", ignore=LEFT_OUT)
    shutil.unpack_archive(build("sdist", folder / "checkout", folder), folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    wheel = build("wheel", unpacked, folder)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
    python = folder / "env" / "bin" / "python"
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    command = [sys.executable, "-m", "pip", f"--python={python}", "install", "--no-deps", "--no-index", "--quiet"]
    alone = {**os.environ, "PYTHONPATH": ""}  # else pip takes a netdfl that is found there for installed
    subprocess.run([*command, "--disable-pip-version-check", str(wheel)], check=True, env=alone)
    (site / "libraries.pth").write_text(str(needed(folder / "libraries")))
    return Built(wheel, python)


def needed(folder: Path) -> Path:
    """A folder with what a plain installation of netdfl brings, and nothing that tests and extras bring."""
    folder.mkdir()
    here, named = Path(sysconfig.get_path("purelib")), set[str]()
    left = list(PROJECT["dependencies"])
    while left:
        requirement = Requirement(left.pop())
        if requirement.name in named or not (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            continue
        named.add(requirement.name)
        found = distribution(requirement.name)
        left += found.requires or ()
        for entry in {str(file).split("/")[0] for file in found.files or ()} - {"..", "__pycache__"}:
            (folder / entry).exists() or (folder / entry).symlink_to(here / entry)
    return folder


def run(built: Built, *words: str) -> str:
    """What a program of the new environment prints."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [built.python.with_name(words[0]), *words[1:]]
    done = subprocess.run(command, cwd=built.wheel.parent, env=environment, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_has_netdfl_alone_and_all_of_it(built: Built) -> None:
    names = set(ZipFile(built.wheel).namelist())
    info = f"netdfl-{PROJECT['version']}.dist-info"
    assert {name.split("/")[0] for name in names} == {"netdfl", info}
    listed = subprocess.run(["git", "ls-files", "netdfl"], cwd=ROOT, text=True, capture_output=True, check=True)
    assert set(listed.stdout.split()) - names == set()
    assert not [name for name in names if "__pycache__" in name or "/tests/" in name]
    shipped = {f"netdfl/shipped/{name}" for name in ("scenarios/quickstart.yaml", "nodes/image/Dockerfile")}
    assert shipped < names


def test_its_command_knows_the_quickstart(built: Built) -> None:
    assert "quickstart" in run(built, "netdfl", "list", "scenarios")


def test_all_modules_the_suites_and_the_quickstart_work_with_what_a_plain_installation_brings(built: Built) -> None:
    """In one process, as most that they take is the import of torch."""
    sets = ("--set=nodes=4", "--set=rounds=2", "--set=topology.neighbors=2", "--set=expect={}")
    command = ["netdfl", "run", "quickstart", "--on=simulated", "--no-page", *sets]
    program = (
        "import importlib, pkgutil, netdfl\n"
        "for module in pkgutil.walk_packages(netdfl.__path__, 'netdfl.'):\n"
        "    if '.shipped' not in module.name and not module.name.endswith('__main__'):\n"
        "        importlib.import_module(module.name)\n"
        "import starlette, uvicorn\n"
        "try:\n"
        "    import pytest\n"
        "except ImportError:\n"
        "    print('no pytest')\n"
        "print(netdfl.__file__)\n"
        "from netdfl.algorithms.catalog import ALGORITHMS\n"
        "from netdfl.testing.contract import CHECKS\n"
        "for check in CHECKS.values(): check(ALGORITHMS['dpsgd'])\n"
        "from netdfl.worlds.containers.image import RECIPE\n"
        "assert (RECIPE / 'Dockerfile').is_file()\n"
        f"import sys; sys.argv = {command}\n"
        "netdfl.cli.main()\n"
    )
    no_pytest, file, said = run(built, "python", "-c", program).split("\n", 2)
    assert no_pytest == "no pytest"
    assert file.startswith(str(built.python.parents[1]))
    assert "quickstart: 4 nodes" in said
    assert (built.wheel.parent / "runs" / "quickstart" / "latest" / "result.json").is_file()


def test_a_users_file_is_checked_against_its_types(built: Built) -> None:
    """Only what the user calls is read, or mypy would check all of torch."""
    folder = built.wheel.parent
    (folder / "mine.py").write_text(USER)
    (folder / "mypy.ini").write_text(
        "[mypy]\nfollow_imports = skip\nincremental = false\n"
        + "".join(f"[mypy-{name}]\nfollow_imports = normal\n" for name in ("netdfl", netdfl.load.__module__))
    )
    command = [sys.executable, "-m", "mypy", f"--python-executable={built.python}", "mine.py"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True)
    assert "py.typed" not in done.stdout
    assert 'Argument "on" to "load" has incompatible type "int"' in done.stdout


def test_who_cites_it_cites_this_version() -> None:
    cited = YAML(typ="safe").load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["version"], cited["title"].split(":")[0]) == (PROJECT["version"], PROJECT["name"])
    assert {"cff-version", "message", "authors"} <= set(cited)
