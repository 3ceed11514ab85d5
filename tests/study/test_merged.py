"""A case's mappings are merged with the scenario's; one that names its part replaces it."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.core.errors import InputError
from netdfl.scenario.load import load
from netdfl.scenario.model.schema import Scenario
from netdfl.study.checking import check_study
from netdfl.study.plan import cells_of, load_study

STUDY = """\
schema: netdfl/study/1
name: mine
sweeps:
  few:
    scenario:
      schema: netdfl/1
      name: few
      nodes: 3
      rounds: 2
      world: {kind: simulated, stragglers: {factor: 3}}
      task: {kind: quadratic, dim: 2}
      algorithm: {name: dfedavg, lr: 0.1, local_epochs: 5}
      topology: ring
      links: {default: {loss: 10%, latency: 5ms}, "[0..1]->2": {loss: 20%}}
    cases:
      one: CASE
    seeds: 1
"""


def in_case(case: str, folder: Path, study: str = STUDY, *shared: str) -> Scenario:
    """The scenario of the study's case, after the overrides of all cells."""
    file = folder / "mine.yaml"
    file.write_text(study.replace("CASE", case))
    (plan,) = load_study(file, folder / "written")
    (cell,) = cells_of(plan, 0, shared)
    return load(plan.scenario, cell.sets)


def test_what_a_mapping_does_not_set_stays(tmp_path: Path) -> None:
    found = in_case("{world: {compute: 10ms}, algorithm: {lr: 0.2}}", tmp_path)
    assert (found.world.kind, found.world.stragglers.factor) == ("simulated", 3)
    assert found.world.compute.params["time"] == 10_000_000
    assert (found.algorithm.kind, found.algorithm.lr, found.algorithm.local_epochs) == ("dfedavg", 0.2, 5)


def test_a_scenarios_short_form_is_merged_as_well(tmp_path: Path) -> None:
    short = STUDY.replace("{kind: simulated, stragglers: {factor: 3}}", "simulated")
    assert in_case("{world: {compute: 10ms}}", tmp_path, short).world.kind == "simulated"


def test_what_is_set_for_all_cells_stays_as_well(tmp_path: Path) -> None:
    bare = STUDY.replace("      world: {kind: simulated, stragglers: {factor: 3}}\n", "")
    assert in_case("{world: {compute: 10ms}}", tmp_path, bare, "world.kind=simulated").world.kind == "simulated"


def test_a_mapping_that_names_its_part_replaces_it(tmp_path: Path) -> None:
    found = in_case("{algorithm: {name: dpsgd}, world: {kind: processes}}", tmp_path)
    assert (found.algorithm.kind, found.algorithm.local_epochs) == ("dpsgd", 1)
    assert found.world.kind == "processes"


def test_a_text_in_a_mapping_stays_a_text(tmp_path: Path) -> None:
    assert in_case("{report: {tags: ['1']}, links: {default: {loss: '5%'}}}", tmp_path).report.tags == ["1"]


def test_keys_with_dots_are_merged_too(tmp_path: Path) -> None:
    case = "{links: {default: {loss: 0}, '[0..1]->2': {latency: 9ms}}}"
    links = in_case(case, tmp_path).model_dump(mode="json", by_alias=True)["links"]
    plain = in_case("{}", tmp_path).model_dump(mode="json", by_alias=True)["links"]
    assert links["default"]["latency"] == plain["default"]["latency"]
    assert links["default"]["loss"] != plain["default"]["loss"]
    assert links["[0..1]->2"]["loss"] == plain["[0..1]->2"]["loss"]
    assert "latency" in links["[0..1]->2"].keys() - plain["[0..1]->2"].keys()


def test_a_mistake_within_a_mapping_has_its_own_place(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(STUDY.replace("CASE", "{world: {compuet: 10ms}}"))
    with pytest.raises(InputError, match=r"mine\.yaml:16:21: unknown key 'compuet'.* did you mean 'compute'"):
        check_study(file)


def test_a_named_value_is_merged_as_a_case_is(tmp_path: Path) -> None:
    varied = STUDY.replace("    cases:\n      one: CASE\n", "    vary:\n      pace:\n        slow: CASE\n")
    assert in_case("{world: {compute: 10ms}}", tmp_path, varied).world.kind == "simulated"
