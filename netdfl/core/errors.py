"""The classes of all errors that netdfl raises on purpose.

NetdflError
├── InputError                  exit 2: the scenario, the data or the machine can't be used
│   ├── ScenarioError           a list of `Problem`s, each with file, line, column and remedy
│   ├── DatasetError            data missing, damaged, or not to be had
│   ├── OwnPartError            a user's own part that does not do what its kind has to
│   │   └── UnsendableError     a payload whose metadata can't be encoded
│   └── MachineError            a port in use, a privilege or a device missing
├── MessageError                a received message that is refused, with the reason
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

Interruption                    ends a computation from a signal

An InputError about an argument of the Python API names the argument, the value that came and what was expected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real

from netdfl.core.fates import FOREIGN, MALFORMED, FateReason

MOST_SHOWN = 100
"""The most mistakes of one scenario that are printed."""
MOST_LETTERS = 2000
"""The most characters of each printed text about a mistake in a scenario."""


class NetdflError(Exception):
    """The base class of netdfl's errors."""


class InputError(NetdflError):
    """The error for unusable input or an unsuitable machine; nothing ran."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a scenario: its place in the file, the fault, and the remedy."""

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
    """Shorten a very long text, because a mistake may quote megabytes."""
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}..."


class ScenarioError(InputError):
    """The error that lists every mistake found in a scenario."""

    def __init__(self, problems: list[Problem]) -> None:
        """Store `problems` in order; the error's text shows only the first of very many."""
        self.problems = sorted(problems, key=lambda p: (p.file, p.line, p.column))
        lines = [str(problem) for problem in self.problems[:MOST_SHOWN]]
        more = len(self.problems) - len(lines)
        super().__init__("\n".join([*lines, *([f"... and {more:,} more mistakes"] if more else [])]))


def problems_in(error: InputError) -> list[Problem]:
    """Return the mistakes that an error lists; an error that lists none is one mistake itself."""
    return error.problems if isinstance(error, ScenarioError) else [Problem(str(error))]


class DatasetError(InputError):
    """The error for data that are missing, damaged, or unavailable."""


class NotFetchedError(DatasetError):
    """The error for data that must first be fetched by `netdfl data get`."""


class OwnPartError(InputError, ValueError):
    """The error for a user's own component, such as a compressor, that breaks its interface.

    `remedy` is the correct signature.
    """

    def __init__(self, what: str, remedy: str = "") -> None:
        """Describe the wrong behavior of the user's component (`what`) and the remedy."""
        super().__init__(f"{what}, {remedy}" if remedy else what)
        self.what, self.remedy = what, remedy


class UnsendableError(OwnPartError, TypeError):
    """The error for a payload with metadata that can't be encoded."""


class MachineError(InputError):
    """The error for a machine that lacks something the scenario needs."""


class Interruption(SystemExit):
    """The base of errors by which netdfl ends a computation from a signal: nobody's mistake, whatever line they hit.

    A SystemExit, because event loops do not catch and log these.
    """


class MessageError(NetdflError):
    """The error for a received message that is refused and so changes nothing.

    `message` is the refused message as far as it was decoded; the node that received it ignores it and continues.
    """

    reason: FateReason = FateReason("refused")

    def __init__(self, text: str, message: object = None, *, reason: FateReason | None = None) -> None:
        """Describe the fault of `message`; `reason` overrides the class's own reason."""
        super().__init__(text)
        self.message = message
        self.reason = reason or self.reason


class MalformedMessage(MessageError):
    """The error for bytes that are not a message, or a message with impossible contents."""

    reason = MALFORMED


class NotFiniteMessage(MessageError):
    """The error for a message with NaN or infinity among its numbers."""

    reason = FateReason("not_finite")


class OversizedMessage(MessageError):
    """The error for a message that is larger than the scenario's model allows."""

    reason = FateReason("oversized")


class ForeignMessage(MessageError):
    """The error for a message from another run, scenario or version, or from a process outside the fleet."""

    reason = FOREIGN


class TransportError(NetdflError):
    """The error for a transport that failed, such as a connection that can't be made."""


class TrainingError(NetdflError):
    """The error for a failed local round. A report names its node and round; a traceback has them as a note."""


class NotFiniteError(TrainingError):
    """The error for a loss or parameter that became infinite or NaN in the local training step `step`, from 0.

    -1 is the last step.
    """

    def __init__(self, what: str, step: int) -> None:
        """Describe the value that became infinite or NaN, and its step."""
        when = f"local step {step}" if step >= 0 else "the last local step"
        super().__init__(f"{when}: {what}; lower lr, or rho where the method has one, or set clip_norm")
        self.what, self.step = what, step


class VirtualTimeError(NetdflError):
    """The error for an operation that is impossible under the virtual clock."""


class RunError(NetdflError):
    """The error for a run that failed for a reason outside the scenario."""


class OwnCodeError(RunError):
    """The error for an exception in a user's own code, with file and line; the run can't continue."""


def expect(fits: object, name: str, value: object, expected: str) -> None:
    """Raise InputError unless `fits` is true.

    The text names the argument `name`, its `value` and what was `expected`.
    """
    if not fits:
        raise InputError(f"{name} is {repr(value)[:80]}: expected {expected}")


def is_whole(value: object, least: int) -> bool:
    """Return whether `value` is a whole number of at least `least`."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def is_number(value: object) -> bool:
    """Return whether `value` is a finite number."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
