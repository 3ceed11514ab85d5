"""No test of the soak is forgotten: a command that the guides name runs its module."""

from __future__ import annotations

import re

from tests.soak import machines
from tests.soak.in_full import SAMPLED
from tests.soak.tally import ROOT

BY_PYTEST = {"tests/diagnosis/test_healthy_in_processes.py": "docs/diagnosis.md"}
"""A module that pytest itself repeats, and the page with its command."""


def test_every_module_with_tests_for_the_soak_is_run_by_a_command_of_it() -> None:
    files = ROOT.glob("tests/**/test_*.py")
    marked = {file for file in files if re.search(r"mark\.soak|RAREL[Y]", file.read_text(encoding="utf-8"))}
    run = {*SAMPLED, *BY_PYTEST, *(f"tests/machines/test_{module}.py" for module in machines.LONG)}
    assert {str(file.relative_to(ROOT)) for file in marked} == run


def test_a_module_that_pytest_repeats_has_its_command_on_a_page() -> None:
    for module, page in BY_PYTEST.items():
        assert f"pytest -m soak {module}" in (ROOT / page).read_text(encoding="utf-8")
