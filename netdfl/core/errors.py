"""Every error that netdfl raises on purpose.

NetdflError
├── InputError                  exit 2: the scenario, the data or the machine can't be used
│   ├── ScenarioError           a list of `Problem`s, each with file, line, column and remedy
│   ├── DatasetError            data missing, damaged, or not to be had
│   ├── OwnPartError            a user's own part that does not do what its kind has to
│   └── MachineError            a port in use, a privilege or a device missing
├── MessageError                a message refused at the boundary, with the reason
│   ├── MalformedMessage        does not decode, fails its checksum, has absurd contents
│   ├── NotFiniteMessage        holds NaN or infinity, and the scenario refuses that
│   ├── OversizedMessage        announces more than the scenario's model allows
│   └── ForeignMessage          another run, scenario, version, or a node that is not a peer
├── TransportError              a transport's own failure, mapped from grpc and the like
├── TrainingError               a local round failed (out of memory)
│   └── NotFiniteError          a loss or a parameter became infinite or NaN
├── VirtualTimeError            something that can't live under the virtual clock
└── RunError                    exit 4: the run broke for a reason outside the scenario
    └── OwnCodeError            a user's own part raised, and the run can't go on

An argument of the Python API that does not fit gets a sentence, with its name, what came and what is expected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real

from netdfl.core.fates import FOREIGN, MALFORMED, FateReason

MOST_SHOWN = 100
"""How many mistakes of one scenario are printed."""
MOST_LETTERS = 2000
"""How long a part of a printed mistake may be."""


class NetdflError(Exception):
    """The root of netdfl's errors."""


class InputError(NetdflError):
    """The input or the machine is unusable; nothing ran."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a scenario: where it stands, what is wrong, and what would be right."""

    what: str
    expected: str = ""
    remedy: str = ""
    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}: " if self.line else f"{self.file}: " if self.file else ""
        return place + ", ".join(_cut(part) for part in (self.what, self.expected, self.remedy) if part)


def _cut(text: str) -> str:
    """The text, without the end of a very long one: a mistake may quote megabytes."""
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}..."


class ScenarioError(InputError):
    """Every mistake found in a scenario at once."""

    def __init__(self, problems: list[Problem]) -> None:
        """Keep `problems` in the order of their places; the text has the first of very many."""
        self.problems = sorted(problems, key=lambda p: (p.file, p.line, p.column))
        lines = [str(problem) for problem in self.problems[:MOST_SHOWN]]
        more = len(self.problems) - len(lines)
        super().__init__("\n".join([*lines, *([f"... and {more:,} more mistakes"] if more else [])]))


class DatasetError(InputError):
    """Data that is missing, damaged, or not to be had."""


class NotFetchedError(DatasetError):
    """Data that `netdfl data get` has not fetched yet."""


class OwnPartError(InputError, ValueError):
    """A user's own part does not do what its kind has to; `remedy` is the signature that does."""

    def __init__(self, what: str, remedy: str = "") -> None:
        """Say `what` the part did."""
        super().__init__(f"{what}, {remedy}" if remedy else what)
        self.what, self.remedy = what, remedy


class MachineError(InputError):
    """This machine lacks what the scenario asks for."""


class MessageError(NetdflError):
    """A message refused at the boundary; it changed nothing.

    `message` is the offender, where it was decoded so far; a node leaves it out and goes on.
    """

    reason: FateReason = FateReason("refused")

    def __init__(self, text: str, message: object = None, *, reason: FateReason | None = None) -> None:
        """Say what is wrong with `message`, and for what `reason` where that is a closer one than the class's."""
        super().__init__(text)
        self.message = message
        self.reason = reason or self.reason


class MalformedMessage(MessageError):
    """Bytes that are not a message, or a message with absurd contents."""

    reason = MALFORMED


class NotFiniteMessage(MessageError):
    """A message with NaN or infinity among its numbers."""

    reason = FateReason("not_finite")


class OversizedMessage(MessageError):
    """A message larger than the scenario's model can make."""

    reason = FateReason("oversized")


class ForeignMessage(MessageError):
    """A message of another run, scenario, version or stranger."""

    reason = FOREIGN


class TransportError(NetdflError):
    """A transport failed."""


class TrainingError(NetdflError):
    """A local round failed. Whoever reports it says of which node and round it was; a traceback has them as a note."""


class NotFiniteError(TrainingError):
    """A loss or a parameter became infinite or NaN in a local round; `step` counts its steps from 0, -1 is the last."""

    def __init__(self, what: str, step: int) -> None:
        """Say what became infinite or NaN, and in which step."""
        when = f"local step {step}" if step >= 0 else "the last local step"
        super().__init__(f"{when}: {what}; lower lr, or rho where the method has one, or set clip_norm")
        self.what, self.step = what, step


class VirtualTimeError(NetdflError):
    """Something that can't live under the virtual clock was asked of it."""


class RunError(NetdflError):
    """The run broke for a reason outside the scenario."""


class OwnCodeError(RunError):
    """A user's own part raised something, at the place that is named, and the run can't go on."""


def expect(fits: object, name: str, value: object, expected: str) -> None:
    """Nothing where `value` fits. Raises InputError where it does not."""
    if not fits:
        raise InputError(f"{name} is {repr(value)[:80]}: expected {expected}")


def is_whole(value: object, least: int) -> bool:
    """Whether it is a whole number, `least` or more."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def is_number(value: object) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
