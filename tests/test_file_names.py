"""No two files of tests have one name: pytest imports them by it, and the second would be an error."""

from __future__ import annotations

from collections import Counter
from pathlib import Path


def test_each_file_of_tests_has_a_name_of_its_own() -> None:
    counts = Counter(file.name for file in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in counts.items() if count > 1] == []
