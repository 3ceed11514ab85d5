"""Every file of `broken/` is refused at the lines, and with the words, that its first comments expect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from netdfl.core.errors import ScenarioError
from netdfl.scenario.load import load

FILES = sorted((Path(__file__).parent / "broken").glob("*.yaml"))
EXPECTED = re.compile(r"^# expect: (\d+): (.+)$", re.MULTILINE)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_mistake_is_reported_at_its_line_with_its_remedy(file: Path) -> None:
    expected = [(int(line), words) for line, words in EXPECTED.findall(file.read_text())]
    with pytest.raises(ScenarioError) as caught:
        load(file)
    problems = caught.value.problems
    assert [(problem.file, problem.line) for problem in problems] == [(str(file), line) for line, _ in expected]
    for problem, (_, words) in zip(problems, expected, strict=True):
        assert words in str(problem)
        assert problem.column > 0


def test_there_are_at_least_twenty() -> None:
    assert len(FILES) >= 20
