"""Builders of compressed mixings, chosen by the scenario's compression scheme; uncompressed without a compressor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from netdfl.algorithms.exchange import Exchange
from netdfl.compression.base import Compressor
from netdfl.compression.identity import IdentityCompressor
from netdfl.mixing.base import Aggregation, Mixing
from netdfl.mixing.compressed.gossip import Choco, DeepSqueeze
from netdfl.mixing.compressed.literal import BareModel, LiteralQuantized
from netdfl.mixing.compressed.push_sum import EdgePushSum, QuantizedPushSum
from netdfl.mixing.compressed.references import KEPT, KEPT_SURE, Differences
from netdfl.mixing.compressed.server import CompressedReports, Feedback
from netdfl.mixing.compressed.step_size import ScaledCompressor


def compressor(exchange: Exchange) -> Compressor:
    """Return the compressor, the identity by default; it is scaled to a contraction if netdfl chooses the step size."""
    given = exchange.compressor or IdentityCompressor()
    return ScaledCompressor(given) if exchange.gamma == "auto" else given


def differences(exchange: Exchange, *, mass: bool = False) -> Differences:
    """Return an encoder of vectors as differences from what receivers know; without a compressor, it encodes nothing.

    With `mass` the differences carry push-sum mass, so receivers keep those that they can't decode yet.
    """
    return Differences(
        compressor=compressor(exchange),
        streams=exchange.streams,
        common_start=exchange.common_start,
        mass=mass,
        kept=KEPT_SURE if exchange.delivery == "acknowledged" else KEPT,
    )


def choco(exchange: Exchange, *, gamma: Any = None, steps: int = 1) -> Choco:
    """Return a CHOCO mixing. Raises ValueError for a treatment of missing neighbors that CHOCO lacks."""
    on_missing = exchange.on_missing
    if on_missing == "renormalise" or on_missing == "undo":
        raise ValueError(f"choco can't {on_missing}, because references would no longer agree; use self or last")
    gamma = gamma or exchange.gamma
    return Choco(differences=differences(exchange), gamma=gamma, on_missing=on_missing, steps=steps)


def deepsqueeze(exchange: Exchange, steps: int = 1) -> DeepSqueeze:
    """Return a DeepSqueeze mixing."""
    return DeepSqueeze(compressor=compressor(exchange), streams=exchange.streams, gamma=exchange.gamma, steps=steps)


def literal(exchange: Exchange) -> LiteralQuantized:
    """Return the mixing of quantized DFedAvgM as its paper prints it."""
    return LiteralQuantized(compressor=exchange.compressor or IdentityCompressor(), streams=exchange.streams)


def undirected(exchange: Exchange, steps: int) -> Mixing:
    """Return gossip compressed by the scenario's compression scheme, with `steps` exchanges a round.

    Raises ValueError for a scheme that is not for gossip.
    """
    if exchange.scheme in ("auto", "choco"):
        return choco(exchange, steps=steps)
    if exchange.scheme == "deepsqueeze":
        return deepsqueeze(exchange, steps)
    if exchange.scheme == "unsafe":
        whole = exchange.compressor or IdentityCompressor()
        return BareModel(compressor=whole, streams=exchange.streams, steps=steps)
    raise ValueError(f"scheme {exchange.scheme} is not for gossip; use choco, deepsqueeze or auto")


def directed(exchange: Exchange) -> Mixing:
    """Return push-sum compressed by the scenario's scheme. Raises ValueError for a scheme that is not for push-sum."""
    if exchange.delivery == "running_sums":
        raise ValueError("running sums grow without end, so they can't be compressed; remove compression")
    if exchange.scheme in ("auto", "edge"):
        return EdgePushSum(differences=differences(exchange, mass=True), gamma=exchange.gamma)
    if exchange.scheme == "push_sum":
        return QuantizedPushSum(differences=differences(exchange, mass=True), gamma=exchange.gamma)
    raise ValueError(f"scheme {exchange.scheme} is not for push-sum; use edge, push_sum or auto")


_FEEDBACK: dict[str, Feedback] = {"auto": "plain", "plain": "plain", "ef14": "ef14", "ef21": "ef21"}


def reports(exchange: Exchange, inner: Aggregation) -> Aggregation:
    """Return the server's aggregation `inner` with compressed reports of clients.

    Raises ValueError for a compression scheme that is not for a server.
    """
    if exchange.compressor is None:
        return inner
    if exchange.scheme not in _FEEDBACK:
        raise ValueError(f"scheme {exchange.scheme} is not for a server; use plain, ef14, ef21 or auto")
    if exchange.extras == "compressed" and not inner.changes:
        those = "scaffold, fedgamma, fedlesam_s, fedsmoo"
        raise ValueError(f"extras: compressed is for what a server adds up ({those}); use exact")
    said = inner.changes if exchange.extras == "compressed" else ()
    how, feedback = differences(exchange), _FEEDBACK[exchange.scheme]
    if feedback == "plain":
        how = replace(how, compressor=exchange.compressor)
    return CompressedReports(inner=inner, differences=how, feedback=feedback, said=said)
