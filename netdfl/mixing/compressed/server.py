"""Compressed reports to a server: a client's difference y - w from the model w, with or without error feedback.

    plain   y^ = w + C(y - w)                                    as the papers run it
    EF14    c = C(e + y - w),  e+ = e + y - w - c,  y^ = w + c   the error is sent later (Seide et al. 2014)
    EF21    g+ = g + C(y - w - g),  y^ = w + g+                  both ends keep g (Richtarik et al. 2021)

The server's own aggregation then gets y^ in place of y. Where only some clients report, EF21 moves the model by the g_i
of all, w+ = w + server_lr (1/n) sum_i g_i over all n clients, g_i = 0 for a client without a report so far (EF21-PP,
Fatkhullin et al. 2021); without any report the model stays. Methods whose clients' moves tend to 0 as they converge
(SCAFFOLD, FedDyn and similar ones) average the received reports, as without compression. The model goes to clients
uncompressed. So do the extra vectors of reports to the server, except for the names in `said`, which are changes
(SCAFFOLD's c_i+ - c_i): of these C(change) is sent, and added at both ends. EF21 costs the server a vector per client;
a lost report is detected there by its version, and requested in the next broadcast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, NamedTuple

import torch
from torch import Tensor

from netdfl.core.types import Inbox, Message, NodeId, Outbox, Payload, View
from netdfl.mixing.base import AggregationWrapper, Refinement
from netdfl.mixing.compressed.copies import Heard, Reference
from netdfl.mixing.compressed.references import Differences, address, compress
from netdfl.mixing.payloads import CODE, EXTRA, MODEL, encoded_vector, pack, some_nodes, to_all, unpack_encoded
from netdfl.training.base import Extras, Objective, Received, S, Update

Feedback = Literal["plain", "ef14", "ef21"]
UP = 1
SAID = "said."


class HubState(NamedTuple, Generic[S]):
    """The server's state: the state of the wrapped exchange, and for EF21 the copies of the clients' vectors g."""

    inner: S
    heard: Heard


class ClientState(NamedTuple):
    """A client's state for compressed reports.

    Attributes:
        memory: the error e not yet sent (EF14), or the vector g with its version (EF21).
        heard: whether the server requested g in full.
    """

    memory: Reference
    heard: Heard


@dataclass(frozen=True, kw_only=True)
class CompressedReports(AggregationWrapper):
    """A wrapper around a server-client exchange that compresses the models that clients report to the server.

    Attributes:
        differences: the encoder of vectors.
        feedback: the kind of error feedback: plain (none), EF14 or EF21.
        said: the names of the extra vectors that are compressed, too.
    """

    differences: Differences
    feedback: Feedback = "plain"
    said: tuple[str, ...] = ()

    def init_server(self, x: Tensor, view: View) -> HubState:
        """Return the server's state: the wrapped exchange's, and no copies of clients' vectors g."""
        return HubState(self.inner.init_server(x, view), replace(self.differences, common_start=False).first(x))

    def init_client(self, x: Tensor, view: View) -> ClientState:
        """Return a client's state before its first report: no compression error to send later."""
        heard = replace(self.differences, common_start=False).first(x)
        return ClientState(heard.start, heard)

    def broadcast(self, state: HubState, x: Tensor, view: View) -> Outbox:
        """Return the wrapped exchange's messages to clients, and requests to clients whose full g (EF21) it needs."""
        outbox = self.inner.broadcast(state.inner, x, view)
        asked = [j for j in state.heard.asks if j in outbox]
        return {
            j: Payload(payload.arrays, {**payload.meta, "ask": asked}) if j in asked else payload
            for j, payload in outbox.items()
        }

    def notice(self, state: ClientState, inbox: Inbox, view: View) -> ClientState:
        """Record whether the broadcast requests this client's vector g in full."""
        owed = tuple(message.src for message in inbox if view.node in some_nodes(message, "ask"))
        return state._replace(heard=state.heard._replace(owed=owed))

    def report_from(
        self, state: ClientState, update: Update, received: Received, view: View
    ) -> tuple[ClientState, Outbox, Tensor, Extras]:
        """Return a client's message to the server, with a compressed difference in place of its model.

        The four results are the new state, the messages, the model y^ as the server decodes it, and the compression
        error of each extra vector that is compressed.
        """
        changes, unsaid = self._encode_changes(update.extras, view)
        state, code, said = self._encode(state, update.x - update.before, view)
        outbox = {
            j: _joined(_without(payload, MODEL, *(EXTRA + name for name in self.said)), code[j], *changes)
            for j, payload in self.inner.report(update, received, view).items()
        }
        return state, outbox, update.before + said, unsaid

    def _encode_changes(self, extras: Extras, view: View) -> tuple[Sequence[Payload], Extras]:
        """Return the compressed codes of the extra vectors that are changes, and their compression errors."""
        how, codes, unsaid = self.differences, [], {}
        for step, name in enumerate(self.said, UP + 1):
            code = compress(how.compressor, extras[name], how.streams, view, step, of=SAID + name)
            codes.append(code)
            unsaid[name] = extras[name] - unpack_encoded(code, how.compressor, extras[name], 1, SAID + name)
        return codes, unsaid

    def _encode(self, state: ClientState, difference: Tensor, view: View) -> tuple[ClientState, Outbox, Tensor]:
        """Compress a difference; return the new state, the messages, and the difference as the server decodes it."""
        if self.feedback == "ef21":
            memory, code = self.differences.send(state.memory, difference, view, UP)
            heard, outbox = address(state.heard, state.memory, code, {}, view.out_neighbors)
            return ClientState(memory, heard), outbox, memory.vector
        meant = difference + state.memory.vector
        code = compress(self.differences.compressor, meant, self.differences.streams, view, UP)
        said = unpack_encoded(code, self.differences.compressor, meant)
        if self.feedback == "ef14":
            state = state._replace(memory=Reference(meant - said))
        return state, to_all(view, code), said

    def aggregate(self, state: HubState, x: Tensor, inbox: Inbox, view: View) -> tuple[HubState, Tensor]:
        """Aggregate the reports, each with its decoded model y^; leave out reports that can't be decoded yet."""
        differences, heard = self._decode(state.heard, inbox, view, x)
        if self.feedback == "ef21" and 0 < len(differences) < view.num_nodes and not self.inner.moves_vanish:
            differences = dict.fromkeys(differences, _mean_of_all(heard, view))
        reports = [self._decoded(m, x + differences[m.src]) for m in inbox if m.src in differences]
        undecoded = [message.src for message in inbox if message.src not in differences]
        inner, model = self.inner.aggregate(state.inner, x, Inbox(reports, [*inbox.missing, *undecoded]), view)
        return HubState(inner, heard), model

    def _decoded(self, message: Message, model: Tensor) -> Message:
        """Return a client's report in uncompressed form, with its decoded `model` y^ and its decoded changes."""
        compressor = self.differences.compressor
        changes = {name: encoded_vector(message, compressor, model, SAID + name) for name in self.said}
        payload = message.payload
        rest = {name: array for name, array in payload.arrays.items() if not name.startswith((CODE + ".", SAID))}
        return message._replace(payload=Payload(rest | dict(pack(model, changes).arrays), payload.meta))

    def _decode(self, heard: Heard, inbox: Inbox, view: View, like: Tensor) -> tuple[Mapping[NodeId, Tensor], Heard]:
        compressor = self.differences.compressor
        if self.feedback != "ef21":
            return {m.src: encoded_vector(m, compressor, like) for m in inbox}, heard
        unasked = tuple(j for j in heard.asks if j not in view.out_neighbors)
        heard, came = self.differences.receive(heard._replace(asks=unasked), inbox, view)
        return {j: decoded[-1].vector for j, decoded in came.items() if decoded}, heard


@dataclass(frozen=True)
class InnerRefinement:
    """A wrapper of a server's own training after aggregation, which passes it only the wrapped exchange's state."""

    refinement: Refinement

    def alone(self, view: View) -> bool:
        """Return whether the server's own training replaces the whole round of `view`, so that clients take no part."""
        return self.refinement.alone(view)

    def refine(self, state: HubState, x: Tensor, objective: Objective, view: View) -> tuple[HubState, Tensor]:
        """Train the server's model `x` as the wrapped refinement does, with the state of the wrapped exchange."""
        inner, x = self.refinement.refine(state.inner, x, objective, view)
        return state._replace(inner=inner), x


def _mean_of_all(heard: Heard, view: View) -> Tensor:
    """Return the mean (1/n) sum_i g_i over all n clients, including those that did not report."""
    known = [heard.copies[j].vector for j in sorted(heard.copies)]
    return torch.stack(known).sum(0) / view.num_nodes


def _without(payload: Payload, *names: str) -> Payload:
    return Payload({name: array for name, array in payload.arrays.items() if name not in names}, payload.meta)


def _joined(*parts: Payload) -> Payload:
    arrays = {name: array for part in parts for name, array in part.arrays.items()}
    return Payload(arrays, {name: value for part in parts for name, value in part.meta.items()})
