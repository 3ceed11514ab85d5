"""Gossip: a weighted mean of the neighbors' vectors, X+ = W X.

`Gossip` averages after the local round (DFedAvg and its kin). `GossipThenStep` is Lian's order,
X+ = W X_before + (X - X_before): the neighbors' vectors of before the step are averaged, and the
node's own step is added. With `steps` Q a round mixes Q times (X+ = W^Q X, as in DFedSAM-MGS).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from netdfl.compression.vector import weighted_sum
from netdfl.core.types import Inbox, OnMissing, Outbox, View
from netdfl.mixing.base import MixResult, RowMixing
from netdfl.mixing.payloads import EXTRA, MODEL, pack, to_all, vector, vectors
from netdfl.training.base import Update

if TYPE_CHECKING:
    from torch import Tensor

_LITTLE = 1e-9
NOTHING_OPEN: Mapping[str, Tensor] = MappingProxyType({})
NOTHING_KNOWN: Mapping[int, tuple[int, int]] = MappingProxyType({})


class GossipState(NamedTuple):
    """A node's knowledge of its neighbors' vectors, and the changes by exchanges that may have to be undone.

    Attributes:
        last: each neighbor's newest vector, if older vectors may stand in for missing ones.
        open: the change by each exchange that may still turn out to have failed, by neighbor, round and step.
        slots: the (round, step) in which each of the newest vectors was sent.
        staleness: the mean age in rounds of the vectors of the last exchange; None if there was none.
    """

    last: dict[int, Tensor]
    open: Mapping[str, Tensor] = NOTHING_OPEN
    slots: Mapping[int, tuple[int, int]] = NOTHING_KNOWN
    staleness: float | None = None


@dataclass(frozen=True, kw_only=True)
class Gossip(RowMixing):
    """Plain gossip: each node averages its vector with its neighbors' by its own row of the mixing matrix W.

    `on_missing` is the treatment of a neighbor whose vector did not arrive. With `self` its weight goes to the node
    itself (rows still sum to 1, but the mean is no longer preserved). With `last` its last vector stands in (its weight
    goes to the node itself until there is one). The value for renormalization scales the other weights up, so that rows
    sum to 1.

    With `stale` s above 0 a neighbor is missing only if its newest known vector is more than s rounds older than this
    round: x_i+ = W_ii x_i + sum_j W_ij x_j(t - a_j), 0 <= a_j <= s. A vector is mixed in each round until a newer one
    arrives or it is too old. Rows still sum to 1, so nodes agree; the mean drifts.

    `undo` is for acknowledged delivery on links that work both ways with a symmetric W. An exchange of two neighbors
    counts only if both vectors arrived in time: a node that used its neighbor's vector, and then learns that its own
    was refused, takes its change back. The mean equals the initial mean once every message has been answered.
    """

    on_missing: OnMissing = "self"
    stale: int = 0

    @property
    def same_to_all(self) -> bool:
        """Whether a node sends the same message to all neighbors.

        False for a subclass with an `outgoing` of its own.
        """
        return type(self).outgoing.__module__ == __name__

    def init(self, x: Tensor, view: View) -> GossipState:
        """Return a state without any neighbor's vector."""
        return GossipState({})

    def outgoing(self, state: GossipState, update: Update, step: int, view: View) -> tuple[GossipState, Outbox]:
        """Send the trained vector to all neighbors."""
        return state, to_all(view, pack(update.x))

    def mix(self, state: GossipState, update: Update, inbox: Inbox, step: int, view: View) -> MixResult:
        """Compute x+ = W_ii x + sum_j W_ij x_j from the neighbors' vectors x_j, with the mixing matrix W."""
        state, mixed = self.average(state, update.x, inbox, view)
        return MixResult(state, Update(update.before, mixed, update.extras, update.loss))

    def average(self, state: GossipState, own: Tensor, inbox: Inbox, view: View) -> tuple[GossipState, Tensor]:
        """Return the weighted mean of `own` and the received vectors; `on_missing` decides about missing ones."""
        if self.on_missing == "undo":
            return exchanged(state, own, inbox, view)
        came = vectors(inbox, own)
        if self.on_missing == "last" or self.stale:
            state = heard(state, inbox, came)
            came = self._usable(state, view)
        weights, self_weight = row(view, came)
        if self.stale:
            ages = [view.round - state.slots[j][0] for j in weights.keys() & came.keys()]
            state = state._replace(staleness=fmean(ages) if ages else None)
        if list(came) == list(weights):  # both in order
            return state, weighted_sum(own, self_weight, list(came.values()), tuple(weights.values()))
        here = [j for j in sorted(came) if j in weights]
        missing = sum(weight for j, weight in weights.items() if j not in came)
        kept = self_weight if self.on_missing == "renormalise" else self_weight + missing
        mixed = weighted_sum(own, kept, [came[j] for j in here], [weights[j] for j in here])
        if self.on_missing == "renormalise":
            there = kept + sum(weights[j] for j in here)
            if there < _LITTLE:  # products of such weights are inexact, or 0
                mixed = _by_shares(own, kept, [came[j] for j in here], [weights[j] for j in here], there)
            else:
                mixed.div_(1.0 - missing)
        return state, mixed

    def _usable(self, state: GossipState, view: View) -> dict[int, Tensor]:
        """Return the latest vectors of neighbors that are recent enough to use."""
        if self.on_missing == "last":
            return state.last
        oldest = view.round - self.stale
        return {j: v for j, v in state.last.items() if state.slots[j][0] >= oldest}

    def figures(self, state: GossipState) -> Mapping[str, float]:
        """Return the metric `staleness`: the mean age in rounds of the vectors that were mixed last."""
        return {} if state.staleness is None else {"staleness": state.staleness}


def heard(state: GossipState, inbox: Inbox, came: Mapping[int, Tensor]) -> GossipState:
    """Return the state with each neighbor's vector in `came`, unless a vector that was sent later arrived before."""
    newest = {message.src: (message.round, message.step) for message in inbox}
    newer = {j: slot for j, slot in newest.items() if j not in state.slots or slot > state.slots[j]}
    vectors = {j: came[j].clone() for j in newer}
    return state._replace(last=state.last | vectors, slots={**state.slots, **newer})


def exchanged(state: GossipState, own: Tensor, inbox: Inbox, view: View) -> tuple[GossipState, Tensor]:
    """Return x + sum_j W_ij (x_j - x), x = `own`, over exchanges not known to have failed; undo those that failed."""
    mixed, still_open = own.clone(), dict(state.open)
    heard = {_exchange(m.dst, m.round, m.step): taken for m, taken in inbox.acknowledgements}
    for key in sorted(heard.keys() & still_open.keys()):
        change = still_open.pop(key)
        if not heard[key]:
            mixed.sub_(change)
    for message in inbox:
        key = _exchange(message.src, message.round, message.step)
        if heard.get(key, True):
            change = (vector(message, own) - own) * view.in_weights.get(message.src, 0.0)
            mixed.add_(change)
            if key not in heard:
                still_open[key] = change
    return state._replace(open=still_open), mixed


def _exchange(peer: int, round: int, step: int) -> str:
    return f"{peer} {round} {step}"


def row(view: View, came: Collection[int]) -> tuple[Mapping[int, float], float]:
    """Return this node's row of the mixing matrix: neighbors' weights and its own.

    The received vectors `came` have equal weights if receivers don't know their senders.
    """
    if view.in_neighbors is not None:
        return view.in_weights, view.self_weight
    share = 1.0 / (1 + len(came))
    return dict.fromkeys(came, share), share


def weighted_mean(view: View, inbox: Inbox, own: Tensor, extra: str = "") -> Tensor:
    """Return W_ii `own` + sum_j W_ij v_j over the messages; the weight of a node without a message goes to `own`.

    v_j is the model in the message of j, or its additional vector `extra`. Raises MalformedMessage if it is missing.
    """
    name = EXTRA + extra if extra else MODEL
    came = {message.src: vector(message, own, name) for message in inbox}
    weights, self_weight = row(view, came)
    here = [j for j in sorted(came) if j in weights]
    missing = sum(weight for j, weight in weights.items() if j not in came)
    return weighted_sum(own, self_weight + missing, [came[j] for j in here], [weights[j] for j in here])


def _by_shares(own: Tensor, kept: float, others: list[Tensor], weights: list[float], total: float) -> Tensor:
    """Return the mean of `own` (weight `kept`) and `others`, with weights over their sum `total`.

    Return a copy of `own` if the sum is 0.
    """
    if not total:
        return own.clone()
    return weighted_sum(own, kept / total, others, [weight / total for weight in weights])


@dataclass(frozen=True, kw_only=True)
class GossipThenStep(Gossip):
    """D-PSGD by Lian: X+ = W X_before + (X - X_before), with the gradient taken before mixing."""

    def outgoing(self, state: GossipState, update: Update, step: int, view: View) -> tuple[GossipState, Outbox]:
        """Send the vector before the local step."""
        return state, to_all(view, pack(update.before))

    def mix(self, state: GossipState, update: Update, inbox: Inbox, step: int, view: View) -> MixResult:
        """Average the vectors before the step, then add the node's own step."""
        state, mixed = self.average(state, update.before, inbox, view)
        return MixResult(state, update._replace(x=mixed.add_(update.x - update.before)))
