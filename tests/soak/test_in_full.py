"""No test of the soak is forgotten: a command that the guides name runs its module."""

from __future__ import annotations

from tests.soak.in_full import BY_PYTEST, marked, sampled
from tests.soak.machines import LONG
from tests.soak.tally import ROOT


def test_a_module_is_run_in_full_by_its_first_mark_unless_another_command_has_it() -> None:
    others = {*BY_PYTEST, *(f"tests/machines/test_{module}.py" for module in LONG)}
    assert set(sampled()) | others == set(marked())
    assert not set(sampled()) & others
    assert {"tests/hostile/test_table.py", "tests/containers/test_suite_in_containers.py"} <= set(sampled())


def test_a_module_that_pytest_repeats_has_its_command_on_a_page() -> None:
    for module, page in BY_PYTEST.items():
        assert f"pytest -m soak {module}" in (ROOT / page).read_text(encoding="utf-8")
