"""What messages count as on simulated links, where a task says that they stand for larger ones."""

from __future__ import annotations

from collections.abc import Callable

from netdfl.core.types import Message
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import Train
from netdfl.training.catalog import SIZED_NBYTES
from netdfl.transport.wire import frame_size


def size_of(scenario: Scenario) -> Callable[[Message], int]:
    """Bytes of a message: of its frame, or what it claims."""
    task = scenario.task
    if isinstance(task, Train) or task.kind != "sized":
        return frame_size
    claimed = task.params["bytes"]

    def size(message: Message) -> int:
        payload = message.payload
        real = sum(array.nbytes for array in payload.arrays.values())
        payload.size = frame_size(message) - real + real * claimed // SIZED_NBYTES
        return payload.size

    return size
