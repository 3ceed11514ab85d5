"""The notebook runs from its first cell to its last, and its outputs show themselves."""

from __future__ import annotations

import ast
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "notebook.ipynb"


class Shown:
    """What `display(..., display_id=True)` gives: an output that is shown anew."""

    pages: list[str]

    def update(self, html: Any) -> None:
        self.pages.append(html.data)


class HTML:
    def __init__(self, data: str) -> None:
        self.data = data


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A kernel of Jupyter's, as far as netdfl knows one."""
    handle = Shown()
    handle.pages = []
    ipython: Any = types.ModuleType("IPython")
    ipython.version_info = (9, 0)
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    display: Any = types.ModuleType("IPython.display")
    display.HTML, display.display = HTML, lambda html, display_id: handle
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return handle.pages


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does; what its last expression gives."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_every_cell_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shown: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in json.loads(PAGE.read_text())["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    pages: list[str] = []
    figures: list[bytes] = []
    for cell in cells:
        given = run_cell("".join(cell["source"]), names)
        if hasattr(given, "_repr_png_"):
            figures.append(given._repr_png_())
        elif hasattr(given, "_repr_html_"):
            pages.append(given._repr_html_())
    assert len(figures) == 4
    again = next("".join(cell["source"]) for cell in cells if "netdfl.run(" in "".join(cell["source"]))
    assert "stalled at the end" in run_cell(again, names)._repr_html_()
    assert all(figure.startswith(b"\x89PNG") for figure in figures)
    assert "stalled at the end" in pages[0]
    assert "2-&gt;1 #3" in pages[1]
    assert "they part at 0.04 s" in capsys.readouterr().out
    assert any("of 6 rounds" in page for page in shown)
    assert any("was lost on 2-&gt;1" in page for page in shown)
    names["replay"].close()


def test_waits_of_a_moment_are_those_of_the_record(tmp_path: Path) -> None:
    import netdfl
    from netdfl.core.errors import InputError

    names: dict[str, Any] = {}
    first = next(cell for cell in json.loads(PAGE.read_text())["cells"] if cell["cell_type"] == "code")
    run_cell("".join(first["source"]), names)
    run = netdfl.run(names["scenario"], out=tmp_path / "run", page=False).run
    assert run.plot.waits_at(0.09) == ([(1, 2)], {1})
    edges, waiting = run.plot.waits_at(0.012)
    assert waiting == {0, 1, 2, 3}
    assert {node for node, _ in edges} == waiting
    with pytest.raises(InputError, match="has no accuracy"):
        run.plot.accuracy()
    with pytest.raises(InputError, match="no figure 'nonsense' of the fleet; there are consensus_distance"):
        run.plot.curve("nonsense")
    assert "stalled" in run._repr_html_()
