"""What a plain installation lacks is hidden from netdfl, and from nobody else."""

from __future__ import annotations

import importlib.util

import pytest
from plain_installation import ADDED, brought, hidden, plain_installation

LIKE_NETDFL = {"__name__": "netdfl.study.sweep"}


def test_what_netdfl_needs_is_there_and_what_tests_and_extras_bring_is_not() -> None:
    assert {"numpy", "torch", "starlette", "pydantic-core"} <= brought()
    assert {"pandas", "polars", "pytest", "hypothesis", "playwright"} <= hidden()
    assert not {"numpy", "torch", "starlette", "netdfl", "ruamel"} & hidden()
    assert "pandas" not in hidden(("pandas",))


def test_netdfl_finds_none_of_it_and_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with plain_installation(monkeypatch):
        with pytest.raises(ModuleNotFoundError, match="pandas"):
            exec("import pandas", dict(LIKE_NETDFL))
        with pytest.raises(ModuleNotFoundError, match="polars"):
            exec("from polars import DataFrame", dict(LIKE_NETDFL))
        assert importlib.util.find_spec("pandas") is None
        exec("import numpy", dict(LIKE_NETDFL))
        import pandas  # noqa: F401 - this test is not netdfl
    exec("import pandas", dict(LIKE_NETDFL))


def test_each_test_that_runs_a_page_in_this_process_hides_it(request: pytest.FixtureRequest) -> None:
    others = [path for path in request.path.parent.glob("test_*.py") if path != request.path]
    runs = {path.name for path in others if "CliRunner().invoke" in path.read_text(encoding="utf-8")}
    assert runs <= set(ADDED), "name it there, with the packages that its page says to add"
