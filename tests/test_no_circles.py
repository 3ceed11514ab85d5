"""No module imports itself over others, late imports and those for types alone counted.

`lint-imports` holds packages and siblings to this (`.importlinter`), across packages only this test does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

import grimp


def circle(imports: Mapping[str, Iterable[str]]) -> list[str]:
    """The modules of one circle, each imported by the next; none where there is no circle."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_a_circle_is_found() -> None:
    assert circle({"a": ["b"], "b": ["c"], "c": []}) == []
    assert sorted(circle({"a": ["b"], "b": ["c"], "c": ["b"]})[1:]) == ["b", "c"]


def test_no_module_imports_itself_over_others() -> None:
    graph = grimp.build_graph("netdfl")
    kept = graph.modules - {"netdfl"}  # it offers what is below it by its own name
    assert kept > {"netdfl.node.runtime", "netdfl.scenario.load", "netdfl.cli"}
    assert circle({module: graph.find_modules_directly_imported_by(module) & kept for module in kept}) == []
