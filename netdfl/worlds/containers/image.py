"""The image of a node: its build folder, its name derived from its contents, and its base image.

The recipe is `nodes/image`. Packages come as wheels that this machine's pip fetches, in the versions that run
here, so that the build itself needs no network; a base image comes from a registry, or else from Debian's
packages (`nodes/image/base.sh`).
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from netdfl.core.errors import DatasetError, MachineError
from netdfl.core.files import PACKAGE, shipped, version_of
from netdfl.scenario.model.schema import Scenario
from netdfl.worlds.containers.docker import REMEDY, call
from netdfl.worlds.containers.packages import packages_for

PYTHON = "3.11"
BASE, OWN_BASE = f"python:{PYTHON}-slim", "netdfl-base:bookworm"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
RECIPE = shipped("nodes/image")
_GLIBC = range(36, 4, -1)  # that of Debian 12, and older


async def image_for(scenario: Scenario, note: Callable[[str], None]) -> str:
    """Return the name of an image for `scenario`: the one that it names, or one built earlier or now.

    Raises MachineError.
    """
    world: Any = scenario.world
    if world.image:
        return str(world.image)
    gpus = asks_gpus(scenario)
    cache().mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=cache(), prefix="image-") as directory:
        folder = Path(directory)
        tag = write_recipe(folder, scenario)
        if not await _exists(tag):
            note(f"building the image {tag}; the first time takes some minutes")
            found = await base(note)
            await add_wheels(folder, gpus=gpus)
            build = ["docker", "build", "--quiet", "--network=none", f"--tag={tag}", f"--build-arg=BASE={found}"]
            await call([*build, str(folder)])
    return tag


def asks_gpus(scenario: Scenario) -> bool:
    """Return whether the nodes train on GPUs, which they do only if the scenario names them."""
    return scenario.device.startswith("cuda")


def cache() -> Path:
    """Return the folder that keeps downloaded wheels and the image's build files between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "netdfl"


def write_recipe(folder: Path, scenario: Scenario, *, collects: bool = False) -> str:
    """Write all sources of the image for `scenario`, except the wheels, into `folder`; return the image's name.

    The name is a digest of these files, so it does not depend on packages that are installed here and not in the image.
    `collects`: add the packages for `netdfl collect`, which gathers the records of nodes into one run directory.
    """
    packages = packages_for(scenario, collects=collects, python=PYTHON)
    (folder / "wheels").mkdir(parents=True, exist_ok=True)
    (folder / "wheels" / "README").write_text("Wheels that lie here are installed, and pip fetches nothing.\n")
    for name, lines in (("requirements.txt", packages.requirements), ("constraints.txt", packages.versions)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(PACKAGE, folder / "app" / PACKAGE.name, ignore=ignored, dirs_exist_ok=True)
    _carry_version(folder / "app")
    if packages.torch:
        _carry_digits(folder / "app" / PACKAGE.name)
    for name in ("Dockerfile", "base.sh", "trim.py"):
        shutil.copy(RECIPE / name, folder / name)
    kind = "gpu-" if asks_gpus(scenario) else "" if packages.torch else "no-torch-"
    return f"netdfl:{kind}{_digest(folder)}"


def _carry_version(app: Path) -> None:
    """Write the version metadata of the installed netdfl into the image's folder `app`, which has only its source."""
    if (version := version_of("netdfl")) is not None:
        about = app / f"netdfl-{version}.dist-info"
        about.mkdir(exist_ok=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: netdfl\nVersion: {version}\n", encoding="utf-8")


def _carry_digits(package: Path) -> None:
    """Copy the digits dataset into the image, which lacks scikit-learn, the package that contains it."""
    from netdfl.training.data.datasets import CARRIED, digits_path

    with suppress(DatasetError):  # not here either: a node says so where it looks for them
        found, target = digits_path(), package / CARRIED
        target.parent.mkdir(exist_ok=True)
        shutil.copy(found, target)


async def add_wheels(folder: Path, *, gpus: bool) -> None:
    """Download the image's packages into `folder`/wheels; PyTorch without CUDA unless `gpus`. Raises MachineError."""
    earlier = [path for path in sorted(cache().glob("wheels-*")) if path.name.endswith("-gpu") == gpus]
    kept = cache() / f"wheels-{_digest(folder, 'requirements.txt', 'constraints.txt')}{'-gpu' if gpus else ''}"
    asked = (folder / "constraints.txt").read_text(encoding="utf-8")
    if not (kept / "complete").exists():
        kept.mkdir(parents=True, exist_ok=True)
        machine = platform.machine().replace("arm64", "aarch64")
        platforms = [f"--platform=manylinux_2_{n}_{machine}" for n in _GLIBC] + [f"--platform=manylinux2014_{machine}"]
        abis = [f"--abi={abi}" for abi in (f"cp{PYTHON.replace('.', '')}", "abi3", "none")]
        python = [f"--python-version={PYTHON}", "--implementation=cp", "--only-binary=:all:"]
        files = [f"--requirement={folder}/requirements.txt", f"--constraint={folder}/constraints.txt"]
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", f"--dest={kept}"]
        fetch += [f"--find-links={place}" for place in (kept, *earlier)]  # a new version of one package fetches that
        fetch += [*python, *abis, *platforms]
        if (torch := re.search(r"^torch==.*", asked, re.MULTILINE)) and not gpus:
            with suppress(MachineError):  # then the build that the other index has will do
                await call([*fetch, "--no-deps", "--retries=1", f"--extra-index-url={CPU_INDEX}", f"{torch[0]}+cpu"])
        await call([*fetch, *files])
        (kept / "complete").touch()
    for wheel in kept.glob("*.whl"):
        os.link(wheel, folder / "wheels" / wheel.name)


async def base(note: Callable[[str], None]) -> str:
    """Return the name of the base image: from a registry, or built here. Raises MachineError."""
    for image in (BASE, OWN_BASE):
        if await _exists(image):
            return image
    try:
        await call(["docker", "pull", "--quiet", BASE])
    except MachineError as unreachable:
        if shutil.which("debootstrap") is None or os.geteuid() != 0:
            raise MachineError(
                f"the base image {BASE} can't be pulled ({unreachable}), and making one needs root and debootstrap: "
                f"install it (apt-get install debootstrap), or name an image with world.image, {REMEDY}"
            ) from None
        note(f"no registry gives {BASE}; making {OWN_BASE} from Debian's packages")
        await call(["sh", str(RECIPE / "base.sh"), OWN_BASE])
        return OWN_BASE
    return BASE


async def _exists(image: str) -> bool:
    return bool((await call(["docker", "image", "ls", "--quiet", image])).strip())


def _digest(folder: Path, *names: str) -> str:
    """Return twelve hexadecimal digits of a hash over all files of `folder`, or over those with the given `names`."""
    found = hashlib.sha256()
    for path in map(folder.joinpath, names) if names else _files(folder):
        found.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:12]


def _files(folder: Path) -> Iterator[Path]:
    return iter(sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".whl"))
