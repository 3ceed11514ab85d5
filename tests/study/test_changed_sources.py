"""What a run was made from is kept in digests: who resumes, replays or sweeps on is told where it has changed."""

from __future__ import annotations

import importlib
import io
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import pytest
from rich.console import Console
from ruamel.yaml import YAML

import netdfl
from netdfl.core.errors import InputError
from netdfl.measure.command import Settings, measure
from netdfl.running.models import open_run
from netdfl.running.provenance import other_versions, what_changed
from netdfl.running.run import resume
from netdfl.scenario.loading.sources import hash_of_sources
from netdfl.scenario.model.schema import Scenario
from netdfl.study.sweep import sweep
from tests.in_process import InProcess

SCENARIO = """
schema: netdfl/1
name: changed
nodes: 4
rounds: 3
world: {kind: simulated, compute: {kind: "pace:steady"}}
task: {kind: consensus, dim: 2}
algorithm: dpsgd
topology: {kind: edge_list, file: graph.csv}
checkpoint: {every: 1}
"""
PACE = "def steady(streams, /):\n    return lambda node, round: 1000\n"
SOURCES = ("graph.csv", "pace.py")
AS_MODULE = [pytest.param("graph.csv", marks=pytest.mark.soak), "pace.py"]
AS_DATA = ["graph.csv", pytest.param("pace.py", marks=pytest.mark.soak)]
"""A run's module and its data are known in the same way: each test has one of them, and both are for the soak."""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    (tmp_path / "graph.csv").write_text("0,1\n1,2\n2,3\n3,0\n")
    (tmp_path / "pace.py").write_text(PACE)
    (tmp_path / "s.yaml").write_text(SCENARIO)
    return tmp_path / "s.yaml"


def edited(file: Path) -> Callable[[], None]:
    """Edit a file; the function that is returned puts it back."""
    before = file.read_text()
    file.write_text(before + ("0,2\n" if file.suffix == ".csv" else "# slower\n"))
    return lambda: (file.write_text(before), None)[1]


@pytest.mark.parametrize("name", AS_DATA)
def test_a_run_is_resumed_and_replayed_from_what_it_was_made_from(name: str, scenario: Path, tmp_path: Path) -> None:
    """Otherwise half of the figures would be of one experiment and half of another."""
    run = netdfl.run(netdfl.load(scenario), out=tmp_path / "run", page=False).run.path
    record = json.loads((run / "result.json").read_text())["event_log_hash"]
    put_back = edited(tmp_path / name)
    with pytest.raises(InputError, match=rf"can't be replayed, for it would be another run: .*/{name} was edited"):
        netdfl.replay(run)
    (run / "result.json").unlink()  # as if it had been killed
    with pytest.raises(InputError, match=rf"can't be resumed, for it would be another run: .*/{name} was edited"):
        resume(run, page=False)
    put_back()
    assert resume(run, page=False).result["event_log_hash"] == record
    (tmp_path / name).unlink()
    assert what_changed(run) == [f"{tmp_path / name} is gone"]


@pytest.mark.parametrize("kind", ["module", "package"])
@pytest.mark.parametrize("how", ["beside", "in the working directory", "on the path"])
def test_modules_are_known_wherever_they_are_imported_from(
    how: str, kind: str, scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python imports a module of the working directory, or of its path, as any other: by its own name.

    Runs know them, and so do explorations, proofs and blames, by one hash.
    """
    home = tmp_path / how.replace(" ", "_")
    home.mkdir()
    name, helper = (f"{each}_{kind}_{len(how)}" for each in ("pace", "helper"))
    files, before = (home / f"{name}.py", home / f"{helper}.py"), ""
    if kind == "package":
        (home / name).mkdir()
        files, before = (home / name / "__init__.py", home / name / f"{helper}.py"), "from . "
    files[0].write_text(f"{before}import {helper}\n" + PACE.replace("1000", f"{helper}.NS"))
    files[1].write_text("NS = 1000\n")
    if how == "beside":
        shutil.copy(tmp_path / "graph.csv", home)
        scenario = home / "s.yaml"
    scenario.write_text(SCENARIO.replace("pace:", f"{name}:"))
    if how == "on the path":
        monkeypatch.syspath_prepend(home)
    elif how == "in the working directory":
        monkeypatch.chdir(home)
    run = netdfl.run(netdfl.load(scenario), out=tmp_path / "run", page=False).run.path
    assert what_changed(run) == []
    known = hash_of_sources(loaded := netdfl.load(scenario))
    for file in files:
        put_back = edited(file)
        assert what_changed(run) == [f"{file} was edited"]
        assert hash_of_sources(loaded) != known
        put_back()
        assert hash_of_sources(loaded) == known


def test_a_process_runs_a_module_as_it_is_now_or_says_that_it_does_not(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a notebook who edits a part and runs again would see the figures of the part as it was."""
    helper, out = tmp_path / "pace_ns.py", iter(range(9))
    (tmp_path / "pace.py").write_text("import pace_ns\n" + PACE.replace("1000", "pace_ns.NS"))

    def seconds_of_a_run(ns: int) -> float:
        helper.write_text(f"NS = {ns}\n")
        run = netdfl.run(netdfl.load(scenario), out=tmp_path / f"run{next(out)}", page=False)
        return float(run.result["virtual_duration_s"])

    assert seconds_of_a_run(20_000) == pytest.approx(20 * seconds_of_a_run(1000))
    monkeypatch.syspath_prepend(tmp_path)  # as where the program lies beside the scenario
    assert seconds_of_a_run(1000) < 1e-5
    with pytest.raises(
        InputError, match="pace_ns was edited after Python imported it; start Python anew, or reload it"
    ):
        seconds_of_a_run(20_000)
    importlib.reload(sys.modules["pace_ns"])
    assert seconds_of_a_run(20_000) > 1e-5
    for name in ("pace", "pace_ns"):
        del sys.modules[name]


@pytest.mark.usefixtures("without_curves", "unsaved")
@pytest.mark.parametrize("name", AS_MODULE)
def test_a_sweep_does_not_mix_runs_from_before_and_after_an_edit(
    name: str, scenario: Path, tmp_path: Path, draw_nothing: Callable[[], None]
) -> None:
    draw_nothing()

    def swept(seeds: int) -> int:
        out, console = tmp_path / "out", Console(file=io.StringIO())
        return sweep(scenario, [], out=out, seeds=seeds, jobs=1, console=console, make_runner=InProcess)

    assert swept(2) == 0
    put_back = edited(tmp_path / name)
    with pytest.raises(InputError) as told:
        swept(3)
    assert f"2 of the finished runs in {tmp_path}/out/" in str(told.value)
    assert f"were made before {tmp_path / name} was edited, and one table would mix them" in str(told.value)
    put_back()
    assert swept(3) == 0
    edited(tmp_path / name)
    shutil.rmtree(tmp_path / "out")
    assert swept(3) == 0


@pytest.mark.usefixtures("without_curves", "unsaved")
@pytest.mark.parametrize("how", ["copied", "moved"])
def test_a_sweep_in_a_folder_that_was_copied_is_held_to_the_modules_there(
    how: str, scenario: Path, tmp_path: Path, draw_nothing: Callable[[], None]
) -> None:
    """The next experiment begins as a copy of the last one, with its results; each run names the files of the old."""
    draw_nothing()
    (tmp_path / "graph.csv").unlink()
    scenario.write_text(SCENARIO.replace("{kind: edge_list, file: graph.csv}", "ring"))

    def swept(folder: Path) -> int:
        return sweep(
            folder / "s.yaml", [], out=folder / "out", seeds=2, jobs=1, console=Console(quiet=True),
            make_runner=InProcess,
        )  # fmt: skip

    (old := tmp_path / "old").mkdir()
    for name in ("s.yaml", "pace.py"):
        shutil.move(tmp_path / name, old)
    assert swept(old) == 0
    new = tmp_path / "new"
    (shutil.copytree if how == "copied" else shutil.move)(old, new)
    put_back = edited(new / "pace.py")
    with pytest.raises(InputError, match=rf"were made before {new}/pace\.py was edited, and one table would mix them"):
        swept(new)
    put_back()
    if how == "copied":
        edited(old / "pace.py")
    assert swept(new) == 0


class EditedMeanwhile(InProcess):
    """Edits a file once the first run has ended."""

    file: Path
    change: tuple[str, str]

    def ended(self) -> Iterator[tuple[Path, int | None]]:
        for number, each in enumerate(super().ended()):
            if not number:
                self.file.write_text(self.file.read_text().replace(*self.change))
            yield each


@pytest.mark.usefixtures("without_curves", "unsaved")
def test_a_sweep_goes_on_with_the_scenario_that_it_began_with(
    scenario: Path, tmp_path: Path, draw_nothing: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for a sweep writes the next scenario meanwhile, in the same file."""
    draw_nothing()
    monkeypatch.setattr(EditedMeanwhile, "file", scenario, raising=False)
    monkeypatch.setattr(EditedMeanwhile, "change", ("dim: 2", "dim: 200"), raising=False)
    out = tmp_path / "out"
    assert not sweep(scenario, [], out=out, seeds=3, jobs=1, console=Console(quiet=True), make_runner=EditedMeanwhile)
    assert netdfl.load(scenario).task.model_dump()["dim"] == 200
    found = [netdfl.load(file).task.model_dump()["dim"] for file in out.glob("*/cells/*/scenario.yaml")]
    assert found == [2, 2, 2]
    assert not list(out.glob("*/cells/*.yaml"))


@pytest.mark.parametrize("name", ["s.yaml", *SOURCES])
def test_what_is_edited_while_cells_are_looked_at_is_noticed(
    name: str, scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = iter(range(9))

    def load(file: Path, sets: Sequence[str]) -> Scenario:
        if next(known) == 1:
            edited(tmp_path / name)
        return netdfl.load(file, sets)

    monkeypatch.setattr("netdfl.study.cells.load", load)
    with pytest.raises(InputError, match=rf"{name} was edited (while its cells were looked at|after the study began)"):
        sweep(scenario, out=tmp_path / "out", seeds=3, console=Console(quiet=True), make_runner=InProcess)


@pytest.mark.usefixtures("without_curves", "unsaved")
def test_a_cell_of_a_sweep_that_was_moved_finds_its_modules(
    scenario: Path, tmp_path: Path, draw_nothing: Callable[[], None]
) -> None:
    draw_nothing()
    out = tmp_path / "out"
    assert not sweep(scenario, [], out=out, seeds=1, jobs=1, console=Console(quiet=True), make_runner=InProcess)
    out.rename(tmp_path / "moved")
    (cell,) = (tmp_path / "moved").glob("*/cells/*/scenario.yaml")
    with netdfl.replay(cell.parent) as played:
        assert played.scenario.folder == cell.parent


def test_modules_of_a_mapping_are_found_where_it_was_loaded(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = netdfl.load(YAML(typ="safe").load(scenario.read_text()))
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    run = netdfl.run(loaded, out=tmp_path / "run", page=False).run.path
    with netdfl.replay(run) as played:
        assert played.run.finished


@pytest.mark.usefixtures("without_curves", "unsaved")
@pytest.mark.parametrize("name", SOURCES)
def test_a_sweep_stops_where_what_its_scenario_names_is_edited_while_it_goes_on(
    name: str,
    scenario: Path,
    tmp_path: Path,
    draw_nothing: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw_nothing()
    monkeypatch.setattr(EditedMeanwhile, "file", tmp_path / name, raising=False)
    monkeypatch.setattr(EditedMeanwhile, "change", ("1", "2"), raising=False)
    with pytest.raises(InputError, match=rf"/{name} was edited after the study began"):
        sweep(
            scenario,
            [],
            out=tmp_path / "out",
            seeds=3,
            jobs=1,
            console=Console(quiet=True),
            make_runner=EditedMeanwhile,
        )


@pytest.mark.usefixtures("without_curves", "unsaved")
def test_a_sweep_says_which_runs_were_made_by_other_versions(
    scenario: Path, tmp_path: Path, draw_nothing: Callable[[], None]
) -> None:
    draw_nothing()
    out, said = tmp_path / "out", io.StringIO()
    for seeds in (1, 2):
        for file in out.rglob("provenance.json"):
            file.write_text(re.sub(r'"numpy": "[^"]*"', '"numpy": "1.0"', file.read_text()))
        sweep(scenario, [], out=out, seeds=seeds, jobs=1, console=Console(file=said, width=200), make_runner=InProcess)
    told = f"numpy is {version('numpy')}, and was 1.0 when it was run: digits may differ"
    assert said.getvalue().count(told) == 1
    (table,) = out.rglob("table.md")
    assert told in table.read_text()


@pytest.mark.parametrize("name", SOURCES)
def test_explorations_proofs_and_blames_are_known_by_what_they_were_made_from(
    name: str, scenario: Path, tmp_path: Path
) -> None:
    before = hash_of_sources(netdfl.load(scenario))
    put_back = edited(tmp_path / name)
    assert hash_of_sources(netdfl.load(scenario)) != before
    put_back()
    assert hash_of_sources(netdfl.load(scenario)) == before


def test_packages_that_a_module_imports_are_in_the_provenance_with_their_versions(
    scenario: Path, tmp_path: Path
) -> None:
    (tmp_path / "pace.py").write_text("import json\nimport packaging.version\n" + PACE)
    run = netdfl.run(netdfl.load(scenario), out=tmp_path / "run", page=False).run.path
    made = json.loads((run / "provenance.json").read_text())
    assert sorted(made["versions"]) == ["netdfl", "numpy", "packaging", "torch"]
    (run / "provenance.json").write_text(json.dumps(made | {"versions": made["versions"] | {"packaging": "0.1"}}))
    assert other_versions(run) == [f"packaging is {version('packaging')}, and was 0.1"]


TABLE = """
schema: netdfl/1
name: judged
nodes: 2
rounds: 1
world: simulated
task: {dataset: {name: table, file: table.csv, target: kind, test: 0.2}, model: {name: mlp, hidden: [2]}}
algorithm: dfedavg
topology: full
"""


def test_models_are_judged_and_measured_on_the_data_that_they_were_trained_on(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("size,kind\n" + "".join(f"{number / 7},{number % 2}\n" for number in range(40)))
    (tmp_path / "s.yaml").write_text(TABLE)
    run = open_run(netdfl.run(netdfl.load(tmp_path / "s.yaml"), out=tmp_path / "run", page=False).run.path)
    before = run.test_figures()
    file = tmp_path / "table.csv"
    whole = file.read_text()
    file.write_text(whole.replace(",1", ",0", 1))
    later = open_run(run.path)
    for ask in (later.test_figures, later.train_figures, lambda: measure(later, "gap", Settings(), print)):
        with pytest.raises(InputError, match=r"for it would be another run: .*/table\.csv was edited"):
            ask()
    file.write_text(whole)
    assert open_run(run.path).test_figures() == before


def test_runs_of_before_name_no_files_and_are_taken(scenario: Path, tmp_path: Path) -> None:
    run = netdfl.run(netdfl.load(scenario), out=tmp_path / "run", page=False).run.path
    made = json.loads((run / "provenance.json").read_text())
    assert list(made.pop("files")) == [str(tmp_path / "graph.csv")]
    (run / "provenance.json").write_text(json.dumps(made))
    assert what_changed(run) == []
