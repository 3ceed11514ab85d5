"""A runner of cells within the test's own process: small runs whose start would cost more than they do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from netdfl.study.resumable import run_or_resume
from netdfl.study.runners.base import Runner, StudyOrder
from netdfl.study.task import path_beside


class InProcess(Runner):
    """Makes one run after the other, and leaves beside it what a process of its own would."""

    made: int = 0

    def start(self, order: StudyOrder) -> None:
        self.order = order

    def ended(self) -> Iterator[tuple[Path, int | None]]:
        for each in self.order.cells:
            code = run_or_resume(each.load(), each.path, 1, self.order.manner)
            path_beside(each.path, "exit").write_text(f"{code}\n", encoding="utf-8")
            type(self).made += 1
            yield each.path, code

    def stop(self) -> None:
        pass
