"""A server that distills synthetic examples from its model's trajectory: for its clients, or for itself.

    rounds 0 to R - 1   any exchange; the server keeps its models w^0 .. w^R
    then, once          D_syn from these models (`netdfl.training.distill`)
    from round R on     FedSynSAM: D_syn goes along with the model to every client, until the client's
                        report confirms it; DynaFed: the server trains its model on D_syn each round

So D_syn crosses each link once, except after lost messages or restarts of clients. FedSynSAM's text keeps w^0 .. w^R,
as this code does; its listing goes one round further. Sources: FedSynSAM Alg. 1; DynaFed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple

import torch
from torch import Tensor

from netdfl.compression.arrays import snapshot, to_tensor
from netdfl.core.types import Array, Inbox, Message, Outbox, Payload, View
from netdfl.mixing.averaging import Averaging
from netdfl.mixing.base import Aggregation, AggregationWrapper
from netdfl.mixing.payloads import EXTRA, absurd, scalar
from netdfl.training.base import Objective, Received, S
from netdfl.training.distill import Distiller, SyntheticExamples, Tuning
from netdfl.training.guided import HOLDS, INPUTS, LABELS


class SyntheticState(NamedTuple, Generic[S]):
    """The server's state: the wrapped exchange's, and its past models or the synthetic examples distilled from them.

    Attributes:
        inner: the wrapped exchange's state.
        trajectory: the server's models, until they are distilled.
        synthetic: the synthetic examples D_syn, after the distillation.
        holders: 1 for each client that confirmed D_syn, shape (n,).
    """

    inner: S
    trajectory: tuple[Tensor, ...]
    synthetic: Mapping[str, Tensor]
    holders: Tensor


@dataclass(frozen=True, kw_only=True)
class Synthesis(AggregationWrapper):
    """An exchange whose server distills synthetic examples D_syn after `warmup` rounds.

    Raises ValueError if `warmup` is shorter than the distance in rounds of the models that the distiller compares.
    """

    inner: Aggregation = field(default_factory=Averaging)
    warmup: int
    distiller: Distiller

    def __post_init__(self) -> None:
        """Check that the warm-up rounds leave enough models of the server to distill synthetic examples from."""
        if self.distiller.gap > self.warmup:
            raise ValueError(
                f"warmup_rounds = {self.warmup} gives no two models that are {self.distiller.gap} rounds apart; "
                f"expected warmup_rounds of {self.distiller.gap} or more, or a shorter gap"
            )

    def init_server(self, x: Tensor, view: View) -> SyntheticState:
        """Return the state with `x` as the first model of the trajectory."""
        return SyntheticState(self.inner.init_server(x, view), (x,), {}, torch.zeros(view.num_nodes))

    def broadcast(self, state: SyntheticState, x: Tensor, view: View) -> Outbox:
        """Return the server's messages to clients as the wrapped exchange makes them."""
        return self.inner.broadcast(state.inner, x, view)

    def aggregate(self, state: SyntheticState, x: Tensor, inbox: Inbox, view: View) -> tuple[SyntheticState, Tensor]:
        """Aggregate the clients' reports as the wrapped exchange does."""
        inner, x = self.inner.aggregate(state.inner, x, inbox, view)
        return state._replace(inner=inner), x

    def alone(self, view: View) -> bool:
        """Return false: clients take part in every round, so the server never trains in their place."""
        return False

    def refine(
        self, state: SyntheticState, x: Tensor, objective: Objective, view: View
    ) -> tuple[SyntheticState, Tensor]:
        """Store the model; after the last warm-up round, distill the stored models and discard them."""
        if state.synthetic:
            return state, x
        trajectory = (*state.trajectory, x)
        if view.round + 1 < self.warmup:
            return state._replace(trajectory=trajectory), x
        made = self.distiller.distil(trajectory, objective, view)
        return state._replace(trajectory=(), synthetic={INPUTS: made.x, LABELS: made.y}), x


@dataclass(frozen=True, kw_only=True)
class SharedSynthesis(Synthesis):
    """FedSynSAM's exchange, which sends D_syn to each client once."""

    def broadcast(self, state: SyntheticState, x: Tensor, view: View) -> Outbox:
        """Send the model, with D_syn to clients that have not confirmed it."""
        outbox = super().broadcast(state, x, view)
        if not state.synthetic:
            return outbox
        made = {name: snapshot(tensor) for name, tensor in state.synthetic.items()}
        return {i: payload if state.holders[i] else _with(payload, made) for i, payload in outbox.items()}

    def aggregate(self, state: SyntheticState, x: Tensor, inbox: Inbox, view: View) -> tuple[SyntheticState, Tensor]:
        """Aggregate by the wrapped exchange; record which clients confirm D_syn."""
        holders = state.holders.clone()
        for message in inbox:
            holders[message.src] = scalar(message, x, EXTRA + HOLDS)
        state, x = super().aggregate(state, x, inbox, view)
        return state._replace(holders=holders), x

    def adopt(self, inbox: Inbox, like: Tensor, view: View) -> tuple[Tensor, Received] | None:
        """Return the server's model, and D_syn if the broadcast has it."""
        adopted = super().adopt(inbox, like, view)
        if adopted is None:
            return None
        x, received = adopted
        made = {name: tensor for message in inbox for name, tensor in _synthetic(message, like).items()}
        return x, Received({**received.extras, **made})


@dataclass(frozen=True, kw_only=True)
class TunedSynthesis(Synthesis):
    """DynaFed's exchange: D_syn stays at the server, which trains its model on it in every later round.

    With `only`, clients take no part in these later rounds.
    """

    tuning: Tuning
    only: bool = False

    def alone(self, view: View) -> bool:
        """Return whether the round is after the warm-up and clients take no part then (`only`)."""
        return self.only and view.round >= self.warmup

    def refine(
        self, state: SyntheticState, x: Tensor, objective: Objective, view: View
    ) -> tuple[SyntheticState, Tensor]:
        """Distill once; in later rounds train the model on D_syn."""
        if not state.synthetic:
            return super().refine(state, x, objective, view)
        examples = SyntheticExamples(state.synthetic[INPUTS], state.synthetic[LABELS])
        return state, self.tuning.tune(x, objective, examples, view)


def _with(payload: Payload, arrays: Mapping[str, Array]) -> Payload:
    return Payload({**payload.arrays, **arrays}, payload.meta)


def _synthetic(message: Message, like: Tensor) -> dict[str, Tensor]:
    """Return D_syn if the message has it. Raises MalformedMessage if only a part of it is there."""
    arrays = message.payload.arrays
    found = [arrays[name] for name in (INPUTS, LABELS) if name in arrays]
    if not found:
        return {}
    counts = [array.shape[:1] for array in found]
    if counts != 2 * counts[:1] or () in counts:
        raise absurd(message, "as many synthetic labels as inputs", [array.shape for array in found])
    x, y = (to_tensor(array).to(like.device) for array in found)
    fit = bool(x.isfinite().all() and (y.isfinite() & (y >= 0)).all())
    if x.dtype != like.dtype or y.dtype not in (torch.int64, like.dtype) or not fit:
        expected = f"finite synthetic inputs of {like.dtype} with labels from 0"
        raise absurd(message, expected, f"{x.dtype} and {y.dtype}")
    return {INPUTS: x, LABELS: y}
