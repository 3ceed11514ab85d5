"""Loss: the models that decide which messages or packets of a link are lost.

Relies on: messages that enter one link in the order in which they were sent, since a burst's chain advances with each
of them.

Why: Loss comes before the rate: a lost message takes no time of the serializer. All other kinds than data have a burst
chain of their own, so that a method that sends more of them does not meet another channel with its data. Models without
memory draw only by the message's name (round, kind ...), so an idle link's model may be discarded and made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from netdfl.core.fates import LOSS, FateReason
from netdfl.core.given_files import given_text
from netdfl.core.types import Kind
from netdfl.core.units import NonNegativeInt, Probability
from netdfl.links.rules.base import DROPPED, LinkEvent, RoundValues, Stage, StageOutcome, Transit
from netdfl.links.rules.keyed_random import count_uniform, unit_uniform
from netdfl.links.rules.recorded import RecordedLoss

_DATA = Kind.DATA


class LossModel(Protocol):
    """A loss model, which decides for each message or packet in the order in which they enter one link.

    A class with `remembers = False` promises that its decisions do not depend on earlier messages; a link at rest may
    then replace its model by a new one.
    """

    def lost(self, unit: Transit) -> bool:
        """Return whether the message or packet `unit` is lost."""
        ...


class Bernoulli:
    """Independent losses: each unit is lost with the same probability.

    A unit is a message, or a packet where links act on packets.
    """

    __slots__ = ("probability", "seed")
    remembers: ClassVar[bool] = False

    def __init__(self, seed: int, /, *, probability: Probability) -> None:
        """Store the edge's random `seed`, and a `probability` of loss from 0 to 1."""
        self.seed = seed
        self.probability = probability

    def lost(self, unit: Transit) -> bool:
        """Decide at random, with the model's probability, whether the message or packet `unit` is lost."""
        return unit_uniform(self.seed, unit) < self.probability


class GilbertElliott:
    """Losses in bursts: a two-state Markov chain, good and bad, each state with its own loss.

    Before each message or packet but the first, the chain goes from good to bad with `p` and from bad to good with `r`;
    it begins in its stationary distribution. It advances once per data message; all other kinds share a second chain,
    so that acknowledgements do not change which data are lost. A duplicate uses the state and does not advance it. (E.
    N. Gilbert 1960; E. O. Elliott 1963.)
    """

    __slots__ = ("_chains", "loss_bad", "loss_good", "p", "r", "seed")

    def __init__(
        self,
        seed: int,
        /,
        *,
        p: Probability,
        r: Probability,
        loss_good: Probability = 0.0,
        loss_bad: Probability = 1.0,
    ) -> None:
        """Store the transition probabilities `p` (good to bad) and `r` (bad to good), and each state's loss rate."""
        if p + r == 0:
            raise ValueError("gilbert_elliott with p = 0 and r = 0 never changes state; give p or r above 0")
        self.seed = seed
        self.p, self.r = p, r
        self.loss_good, self.loss_bad = loss_good, loss_bad
        self._chains = [self._begin(seed), self._begin(seed ^ 1)]

    def _begin(self, seed: int) -> list[int]:
        bad = count_uniform(seed, -1) < self.p / (self.p + self.r)
        return [seed, 0, int(bad)]

    @property
    def stationary_loss(self) -> float:
        """The long-run share of lost messages or packets: (r loss_good + p loss_bad) / (p + r)."""
        return (self.r * self.loss_good + self.p * self.loss_bad) / (self.p + self.r)

    @property
    def mean_burst(self) -> float:
        """The mean number of messages lost in a row (1 / r where good loses nothing and bad everything).

        This is P(lost) / P(lost, and the one before was not); infinite where all are lost, 0 where none is.
        """
        good, bad = self.r / (self.p + self.r), self.p / (self.p + self.r)
        after_good = (1 - self.p) * self.loss_good + self.p * self.loss_bad
        after_bad = self.r * self.loss_good + (1 - self.r) * self.loss_bad
        starts = self.stationary_loss - good * self.loss_good * after_good - bad * self.loss_bad * after_bad
        if self.stationary_loss == 0:
            return 0.0
        return self.stationary_loss / starts if starts > 0 else float("inf")

    def lost(self, unit: Transit) -> bool:
        """Advance the burst chain (one for data, one for all other kinds); return whether its state loses `unit`."""
        chain = self._chains[unit.kind is not _DATA]
        if not unit.copy:
            seed, count, bad = chain
            if count:
                u = count_uniform(seed, count)
                chain[2] = u >= self.r if bad else u < self.p
            chain[1] = count + 1
        loss = self.loss_bad if chain[2] else self.loss_good
        return unit_uniform(self.seed, unit) < loss


@dataclass(frozen=True)
class Match:
    """The name of messages: their `round`, and optionally step, kind and attempt."""

    round: NonNegativeInt
    step: NonNegativeInt | None = None
    kind: Kind | None = None
    attempt: NonNegativeInt | None = None

    def matches(self, unit: Transit) -> bool:
        """Return whether the message `unit` fits this description; a heartbeat must be described by its kind."""
        return (
            (unit.of_round if self.kind is None else unit.round) == self.round
            and self.step in (None, unit.step)
            and self.kind in (None, unit.kind)
            and self.attempt in (None, unit.attempt)
        )


def rounds_beyond(messages: Sequence[Match], rounds: int) -> str:
    """Return an error text if any of `messages` names a round beyond the run's `rounds` rounds; else an empty text."""
    beyond = sorted({match.round for match in messages if match.round >= rounds})
    return f"drop_list names round {beyond[0]}, and rounds are 0 to {rounds - 1}; correct it" if beyond else ""


class DropList:
    """Losses of exactly the listed messages, and their duplicates."""

    __slots__ = ("_by_round", "messages")
    remembers: ClassVar[bool] = False

    def __init__(self, seed: int, /, *, messages: list[Match]) -> None:
        """Store the names of the messages to lose, at least one, in any order."""
        if not messages:
            raise ValueError("drop_list has no messages; list at least one, like {round: 3}, or use loss: 0")
        self.messages = tuple(messages)
        self._by_round: dict[int, list[Match]] = {}
        for match in messages:
            self._by_round.setdefault(match.round, []).append(match)

    def lost(self, unit: Transit) -> bool:
        """Return whether the message `unit` is listed."""
        return any(match.matches(unit) for match in self._by_round.get(unit.round, ()))


class Trace:
    """Losses of data messages by a list of 0 and 1, where 1 means lost, which is repeated.

    All other kinds together go through the same list with a position of their own. A duplicate has the entry of its
    original.
    """

    __slots__ = ("_places", "losses")

    def __init__(self, seed: int, /, *, losses: list[int] | None = None, file: str | None = None) -> None:
        """Read the list from `losses` or from a `file` of 0 and 1 separated by white space or commas; 1 is lost."""
        if (losses is None) == (file is None):
            raise ValueError("a loss trace needs one of losses: [0, 1, ...] and file: PATH; give one of them")
        values = losses if losses is not None else _read_losses(str(file))
        if not values or any(value not in (0, 1) for value in values):
            raise ValueError("a loss trace is a list of 0 (kept) and 1 (lost), not empty; correct the list")
        self.losses = bytes(values)
        self._places = [-1, -1]

    def lost(self, unit: Transit) -> bool:
        """Advance to the next list entry for data, or for all other kinds, and return whether it is 1."""
        chain = unit.kind is not _DATA
        if not unit.copy:
            self._places[chain] = (self._places[chain] + 1) % len(self.losses)
        return self.losses[self._places[chain]] == 1


def _read_losses(file: str) -> list[int]:
    words = given_text(file).replace(",", " ").split()
    if not set(words) <= {"0", "1"}:
        raise ValueError(f"loss trace {file} holds more than 0 and 1; write 0 for kept, 1 for lost")
    return [int(word) for word in words]


class Loss(Stage):
    """The stage that drops messages or packets by a loss model.

    The stage delays nothing; a change acts on messages that enter after it. A new model starts afresh (a bursty chain
    in its stationary state, a trace at its beginning).
    """

    __slots__ = ("model", "rounds")
    reason: ClassVar[FateReason] = LOSS

    def __init__(self, model: LossModel | None = None, rounds: RoundValues[LossModel] | None = None) -> None:
        """Drop messages by `model` (None: drop none); for the messages of some rounds, `rounds` gives another model."""
        self.model = model
        self.rounds = rounds

    def advance(self, unit: Transit, now_ns: int) -> int:
        """Return `DROPPED` if the loss model loses the message or packet `unit`, else `now_ns`."""
        model = self.model
        if self.rounds is not None:
            model = self.rounds.at(unit.of_round) or model
        return DROPPED if model is not None and model.lost(unit) else now_ns

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Replace the loss model by the event's, if the event has one."""
        self.model = event.get("loss", self.model)
        return ()

    def rests(self, now_ns: int) -> bool:
        """Return whether the model's decisions do not depend on earlier messages, so that a new model acts the same."""
        return self.rounds is None and (self.model is None or not getattr(self.model, "remembers", True))


LOSSES: Mapping[str, Callable[..., LossModel]] = {
    "bernoulli": Bernoulli,
    "gilbert_elliott": GilbertElliott,
    "drop_list": DropList,
    "trace": Trace,
    "recorded": RecordedLoss,
}
