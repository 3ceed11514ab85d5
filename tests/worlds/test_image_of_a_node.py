"""The image of a node, without Docker: its name and its packages go by what is in it, and by nothing else."""

from __future__ import annotations

import builtins
import ctypes
import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from PIL import Image

from netdfl.core.errors import MachineError
from netdfl.core.rng import Streams
from netdfl.host.task_setup import make_problem
from netdfl.scenario.load import load, loads
from netdfl.scenario.model.schema import Scenario
from netdfl.training.data import datasets
from netdfl.worlds.containers import image
from netdfl.worlds.containers.packages import BY_DATASET, Packages, canonical, packages_for
from tests.standalone.hand_fleet import free_ports

FLEET = """
schema: netdfl/1
name: fleet
nodes: {nodes}
rounds: 2
world: containers
task: {task}
algorithm: dpsgd
topology: {topology}
"""
AGREES, TRAINS = "{kind: consensus, dim: 4}", "{dataset: digits, model: mlp}"
SPARE = ("torch", "duckdb", "matplotlib", "jinja2", "sklearn", "scipy", "PIL", "packaging")
WITHOUT = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {SPARE}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing())
from netdfl.cli import main
main()
"""


def fleet(task: str = AGREES, topology: str = "full", nodes: int = 3) -> Scenario:
    return loads(FLEET.format(task=task, topology=topology, nodes=nodes), file="fleet.yaml")


def names(packages: Packages) -> set[str]:
    return {line.partition("==")[0] for line in packages.versions}


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The name of an image of a netdfl that has one module, and a fresh folder for packages that come first."""
    source, site = tmp_path / "netdfl", tmp_path / "site"
    (source / "shipped").mkdir(parents=True)
    site.mkdir()
    (source / "node.py").write_text("ROUNDS = 1")
    monkeypatch.setattr(image, "PACKAGE", source)
    monkeypatch.syspath_prepend(site)
    count = iter(range(100))
    return lambda scenario: image.write_recipe(tmp_path / f"recipe-{next(count)}", scenario)


def install(site: Path, name: str, version: str, *needs: str) -> None:
    """Lay down what an installed distribution says of itself."""
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {n}" for n in needs)]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("task", [AGREES, TRAINS])
def test_the_name_does_not_depend_on_what_is_not_in_the_image(named: Any, tmp_path: Path, task: str) -> None:
    before = named(fleet(task))
    install(tmp_path / "site", "pytest", "99.1", "numpy>=1")
    install(tmp_path / "site", "a_plugin", "1.0", "torch")
    assert named(fleet(task)) == before


def test_the_name_changes_with_the_version_of_a_package_that_is_in_it(named: Any, tmp_path: Path) -> None:
    before = {task: named(fleet(task)) for task in (AGREES, TRAINS)}
    install(tmp_path / "site", "sympy", "99.1")  # which torch needs, and nobody else
    assert named(fleet(AGREES)) == before[AGREES]
    assert named(fleet(TRAINS)) != before[TRAINS]
    install(tmp_path / "site", "numpy", "99.1")
    assert named(fleet(AGREES)) != before[AGREES]


def test_the_name_changes_with_netdfls_source(named: Any, tmp_path: Path) -> None:
    before = named(fleet())
    (tmp_path / "netdfl" / "node.py").write_text("ROUNDS = 2")
    assert named(fleet()) != before


def test_requirements_follow_from_each_other_by_the_images_system_and_with_their_extras(tmp_path: Path) -> None:
    needs = {
        "netdfl": ["torch>=2", "grpc[fast]>=1", "winonly; sys_platform == 'win32'", "pytest; extra == 'dev'"],
        "torch": ["sympy"],
        "grpc": ["deep", "quick; extra == 'fast'", "slow; extra == 'slow'", "old; python_version < '3.11'"],
        "deep": ["grpc"],  # a circle
    }

    class Distribution:
        def __init__(self, name: str) -> None:
            self.name, self.version, self.requires = name, "1.5+local", needs.get(name, [])

    found = packages_for(fleet(), find=Distribution)  # type: ignore[arg-type]
    assert found == Packages(["grpc[fast]>=1"], ["deep==1.5", "grpc==1.5", "quick==1.5"])
    trained = packages_for(fleet(TRAINS), find=Distribution)  # type: ignore[arg-type]
    assert names(trained) == {"deep", "grpc", "quick", "torch", "sympy"}


def test_what_is_not_installed_has_no_image() -> None:
    def find(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    with pytest.raises(MachineError, match=r"not installed; run `pip install -e \.` there, or name an image"):
        packages_for(fleet(), find=find)


def test_a_node_gets_pytorch_where_something_trains_and_what_its_data_are_read_by(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("x,y\n1,0\n2,1\n3,0\n4,1\n")
    table = f"{{dataset: {{name: table, file: {tmp_path / 'table.csv'}, target: y}}, model: mlp}}"
    found = {task: names(packages_for(fleet(task))) for task in (AGREES, TRAINS, table)}
    assert {"numpy", "grpcio", "networkx"} <= found[AGREES] < found[TRAINS] < found[table]
    assert not {"torch", "sympy", "scipy", "scikit-learn", "duckdb", "matplotlib", "pytest"} & found[AGREES]
    assert "torch" in found[TRAINS]
    assert found[table] - found[TRAINS] == {"duckdb"}


def test_what_reads_a_users_data_is_in_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every dataset that reads files of a user's is read here, and what it imports for that is looked for."""
    monkeypatch.setenv("NETDFL_DATA", str(tmp_path))
    rows = "".join(f"{k % 7},{k % 2}\n" for k in range(20))
    for name in ("0", "1", "2"):
        (tmp_path / f"{name}.csv").write_text(f"x,y\n{rows}")
    for label, number in (("cats", 1), ("dogs", 2)):
        (tmp_path / "pics" / label).mkdir(parents=True)
        for k in range(4):
            Image.new("RGB", (6, 6), (k, number, 0)).save(tmp_path / "pics" / label / f"{k}.png")
    np.savez(tmp_path / "x.npz", x=np.arange(40.0).reshape(20, 2), y=np.arange(20) % 2)
    kinds = {
        "table": f"{{name: table, file: {tmp_path / '0.csv'}, target: y}}",
        "client_files": '{name: client_files, each: "{node}.csv", target: y, inputs: [x], classes: 2}',
        "image_folder": f"{{name: image_folder, folder: {tmp_path / 'pics'}}}",
        "arrays": f"{{name: arrays, file: {tmp_path / 'x.npz'}}}",
    }
    assert {*kinds, "hugging_face"} == {*datasets.DATASETS} - {*datasets.FETCHED}, "each has its example"
    homes = metadata.packages_distributions()
    for kind, dataset in kinds.items():
        scenario = fleet(f"{{dataset: {dataset}, model: mlp}}")
        with recorded_imports(monkeypatch) as imported:
            make_problem(scenario, Streams(scenario.seed)).task(0, "cpu")
        found = names(packages_for(scenario))
        known = {top: {canonical(name) for name in homes.get(top, ())} for top in imported}
        assert {top for top, by in known.items() if by and not by & {"netdfl", *found}} == set(), kind
    assert "datasets" in BY_DATASET["hugging_face"]


@contextmanager
def recorded_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The top names of what netdfl's training and its host import meanwhile, whether it is loaded or not."""
    usual, found = builtins.__import__, set[str]()

    def noting(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if not level and str((globals or {}).get("__name__", "")).startswith(("netdfl.training", "netdfl.host")):
            found.add(name.partition(".")[0])
        return usual(name, globals, locals, fromlist, level)

    with monkeypatch.context() as patched:
        patched.setattr(builtins, "__import__", noting)
        yield found


def test_the_image_that_makes_a_run_of_what_nodes_wrote_has_what_makes_its_page() -> None:
    found = names(packages_for(fleet(), collects=True))
    assert {"duckdb", "matplotlib", "jinja2"} <= found
    assert "torch" not in found


def test_what_own_modules_import_is_in_the_image_also_where_a_function_does(tmp_path: Path) -> None:
    (tmp_path / "graphs.py").write_text(
        "from netdfl.topology.static import ring\n\ndef mine(num_nodes: int, streams, /):\n"
        "    import helper\n    return ring(num_nodes, streams)\n"
    )
    (tmp_path / "helper.py").write_text("def rarely():\n    from sklearn import cluster\n    import not_installed\n")
    (tmp_path / "unrelated.py").write_text("import matplotlib\n")
    (tmp_path / "fleet.yaml").write_text(FLEET.format(task=AGREES, topology="graphs:mine", nodes=3))
    found = names(packages_for(load(tmp_path / "fleet.yaml")))
    assert {"scikit-learn", "scipy"} <= found
    assert not {"torch", "matplotlib"} & found
    (tmp_path / "helper.py").write_text("def rarely():\n    from netdfl.training import flat\n")
    assert "torch" in names(packages_for(load(tmp_path / "fleet.yaml")))


def test_the_image_has_the_digits_without_scikit_learn_and_knows_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = datasets.digits_path().read_bytes()
    image.write_recipe(tmp_path / "recipe", fleet(TRAINS))
    inside = tmp_path / "recipe" / "app" / "netdfl"
    monkeypatch.setattr(datasets, "PACKAGE", inside)
    assert datasets.digits_path().is_relative_to(inside)
    assert datasets.digits_path().read_bytes() == here
    (about,) = metadata.distributions(path=[str(inside.parent)])
    assert (about.name, about.version) == ("netdfl", metadata.version("netdfl"))


def test_what_no_node_reads_is_taken_out_and_libraries_still_load(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    there = ("torch/testing/a.py", "torch/bin/torch_shm_manager", "own/library.so.txt", "own/__init__.py")
    gone = ("torch/test/a.py", "torch/bin/test_jit", "torch/include/a.h", "own/tests/test_a.py", "own/a.pyi", "own/b.a")
    for name in (*there, *gone):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_bytes(b"as it was")
    (built,) = Path(msgpack.__file__).parent.glob("_cmsgpack*.so")
    library = packages / "own" / "library.so"
    library.write_bytes(built.read_bytes())
    runpy.run_path(str(image.RECIPE / "trim.py"))["main"](tmp_path)
    assert [name for name in (*there, *gone) if (packages / name).exists()] == list(there)
    assert (packages / "own/library.so.txt").read_bytes() == b"as it was"
    assert library.stat().st_size < built.stat().st_size
    assert ctypes.CDLL(str(library)).PyInit__cmsgpack


def test_nodes_that_train_nothing_run_with_nothing_but_what_their_image_has(tmp_path: Path) -> None:
    ports = free_ports(2)
    (tmp_path / "peers.json").write_text(json.dumps({node: f"127.0.0.1:{port}" for node, port in enumerate(ports)}))
    (tmp_path / "fleet.yaml").write_text(FLEET.format(task=AGREES, topology="full", nodes=2))
    files = [f"--scenario={tmp_path / 'fleet.yaml'}", f"--peers={tmp_path / 'peers.json'}", "--no-tls"]
    command = [sys.executable, "-c", WITHOUT, "node", *files]
    nodes = [
        subprocess.Popen(
            [*command, f"--id={node}", f"--listen=127.0.0.1:{port}", f"--out={tmp_path / str(node)}"],
            stderr=subprocess.PIPE,
            text=True,
        )
        for node, port in enumerate(ports)
    ]
    said = [node.communicate(timeout=120)[1] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said
