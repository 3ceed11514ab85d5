"""Planted faults that a strong test notices and a weak one does not, one that never ends, and going on later."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.soak.mutations import mutations
from tests.soak.nearest import Blocks, Nearest, Record, state_of
from tests.soak.tally import ROOT

SUMS = """
    from __future__ import annotations

    def at_most(value: int, most: int) -> int:
        '''Cut off; 0 or 1.'''
        if value > most:
            return most
        return value

    def count(left: int) -> None:
        while left:
            left -= 1
"""
WEAK = """
    from planted.sums.sums import at_most, count

    def test_small():
        assert at_most(1, 2) == 1

    def test_count():
        count(1)
"""
STRONG = (
    WEAK
    + """
    def test_large():
        assert at_most(3, 2) == 2
"""
)
RUN = """
    import json, sys
    from pathlib import Path
    from tests.soak.forks import import_once
    from tests.soak.mutants import PLUGINS, Place, drawn, record, try_all
    import_once(PLUGINS)
    root = Path(sys.argv[1])
    place = Place(root, "planted", root / "kept", root / "equivalents.json", cpu_s=1.0)
    score = try_all(place, drawn(place, "sums", 60, seed=1), record(place, ["sums"], 1), 1)
    print(json.dumps([score.drawn, score.equivalent, score.survivors]))
"""
SAME = [
    ["if value > most:", "value > most -> value >= most", "at the boundary both are the same"],
    *(
        ["left -= 1", what, "as good as the one that is tried"]
        for what in ("left -= 1 -> left += 1", "1 -> 2", "1 -> 0")
    ),
]


def put(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(dedent(text))


def tried(root: Path) -> tuple[str, list[Any]]:
    """What is printed on the way, and the score."""
    command = [sys.executable, "-c", dedent(RUN), str(root)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    *told, score = ran.stdout.splitlines()
    return "\n".join(told), json.loads(score)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path, "pytest.ini", "[pytest]\npythonpath = .\n")
    put(tmp_path, "planted/sums/sums.py", SUMS)
    put(tmp_path, "tests/sums/test_sums.py", WEAK)
    listed = [
        dict(zip(("file", "text", "what", "reason"), ["planted/sums/sums.py", *row], strict=True)) for row in SAME
    ]
    put(tmp_path, "equivalents.json", json.dumps(listed))
    return tmp_path


def test_what_a_weak_test_misses_a_strong_one_notices_and_the_rest_is_not_tried_again(root: Path) -> None:
    before = (root / "planted/sums/sums.py").read_bytes()
    told, (drawn, equivalent, survivors) = tried(root)
    assert (drawn, equivalent) == (len(mutations("planted/sums/sums.py", before)), len(SAME))
    assert survivors == ["planted/sums/sums.py:7: return most -> return None"]
    assert "timeout" in next(line for line in told.splitlines() if "left -= 1 -> pass" in line)
    assert told.count("killed") + told.count("timeout") == drawn - equivalent - 1

    put(root, "tests/sums/internals/test_more_sums.py", STRONG)
    told, score = tried(root)
    assert score == [drawn, equivalent, []]
    assert [line.split()[0] for line in told.splitlines() if "[" in line] == ["killed"]
    assert (root / "planted/sums/sums.py").read_bytes() == before


def test_a_mutation_is_the_same_when_lines_above_it_move_and_its_source_can_be_read() -> None:
    source = dedent(SUMS).encode()
    found, moved = mutations("a.py", source), mutations("a.py", b"\n# above\n" + source)
    assert [each.key for each in found] == [each.key for each in moved]
    assert len({each.key for each in found}) == len(found)
    for each in found:
        assert each.applied(source) != source
        compile(each.applied(source), "a.py", "exec")
        with pytest.raises(ValueError, match="has changed since"):
            each.applied(source + b"# meanwhile")


def test_about_code_that_changed_since_it_was_recorded_its_functions_tests_are_asked() -> None:
    source = "def f(x):\n    return x\n\ndef g(x):\n    return x\n"
    before, after = Blocks("a", source.encode()), Blocks("a", f"# above\n{source[:-2]}-x\n".encode())
    test = "tests/a/test_a.py::test_{}".format
    blocks = [before.lines[2], before.lines[5]]
    tests = {
        test("both"): (0.1, [0, 1]),
        test("f"): (0.1, [0]),
        test("g"): (0.1, [1]),
        test("none"): (0.1, list[int]()),
    }
    nearest = Nearest([Record("tests/a/test_a.py", blocks, tests)])
    assert (after.lines[3] in blocks, after.lines[6] in blocks) == (True, False)
    assert nearest.to("a", after.lines[3], "f", "tests/a/") == [test(each) for each in ("f", "both", "none", "g")]
    assert nearest.to("a", after.lines[6], "g", "tests/a/") == [test(each) for each in ("g", "both", "none", "f")]
    assert nearest.to("a", "", "h", "tests/a/") == [test(each) for each in ("f", "g", "both", "none")]
    assert nearest.to("b", "", "h", "tests/a/") == [test(each) for each in ("none", "f", "g", "both")]
    assert nearest.to("b", "", "h", "tests/b/") == []
    anew = Record("tests/b/test_b.py", [after.lines[6]], {"tests/b/test_b.py::test_g": (0.1, [0])})
    both = Nearest([*nearest.records.values(), anew]).to("a", after.lines[6], "g", "tests/b/")
    slow = Record("tests/a/test_s.py", blocks, {"tests/a/test_s.py::test_slow": (4.0, [0])})
    assert Nearest([slow, *nearest.records.values()]).to("a", blocks[0], "f", "tests/a/")[-1].endswith("::test_slow")
    assert both[:3] == ["tests/b/test_b.py::test_g", test("g"), test("both")], (
        "one that was recorded anew hides no others"
    )


def test_the_helpers_of_a_folder_are_also_those_of_its_internals(tmp_path: Path) -> None:
    put(tmp_path, "tests/sums/sums_helper.py", "most = 1")
    files = [tmp_path / "tests/sums" / name for name in ("test_sums.py", "internals/test_inside.py", "far/test_far.py")]
    for file in files:
        put(tmp_path, str(file.relative_to(tmp_path)), WEAK)
    before = [state_of(file) for file in files]
    put(tmp_path, "tests/sums/sums_helper.py", "most = 2")
    assert [state_of(file) != state for file, state in zip(files, before, strict=True)] == [True, True, False]
    numbers = "tests/sums/internals/test_numbers_of_sums.py"
    nearest = Nearest([Record(numbers, [], {f"{numbers}::test_most": (0.1, [])})])
    assert nearest.of_files("tests/sums/", "test_numbers_of_") == [f"{numbers}::test_most"]
    assert nearest.of_files("tests/others/", "test_numbers_of_") == []


@pytest.mark.parametrize(
    "text",
    [
        '"""1 + 1"""',
        "def f(x: int | None) -> tuple[int, 1]: ...",
        "def f(x):\n    raise ValueError(x + 1)",
        "def f(x):\n    assert x > 1",
        "class A:\n    def __repr__(self) -> str:\n        return 1 + 1",
        "if TYPE_CHECKING:\n    x = 1",
        "@part(3, 4)\nclass A: ...",
        "def f(x):\n    x = f'{x + 1}'",
        "x: int | None = None",
        "X: TypeAlias = Literal[0, 1]",
    ],
)
def test_sentences_types_and_what_asserts_are_no_targets(text: str) -> None:
    assert mutations("a.py", text.encode()) == []


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("a < b", {"a <= b", "a >= b"}),
        ("a and not b", {"a or not b", "a", "not b", "a and b"}),
        ("x[1:n]", {"x[2:n]", "x[0:n]", "x[1:n - 1]"}),
        ("min(a, b)", {"max(a, b)"}),
        ("f(a, b)", {"f(b, a)"}),
        ("a if b else c", {"a if not b else c"}),
        ("[a for a in b if a]", {"[a for a in b if not a]"}),
        ("-0.5", {"0.5", "-1.0"}),
    ],
)
def test_an_expression_becomes_each_of_its_faults(text: str, becomes: set[str]) -> None:
    import ast

    source = f"def f(a, b):\n    x = {text}\n".encode()
    whole = [ast.unparse(ast.parse(each.applied(source)).body[0].body[0].value) for each in mutations("a.py", source)]
    assert set(whole) == becomes
    assert len(whole) == len(becomes)
