"""Orders and reports as bytes: the protobuf of protos/netdfl/v1/control.proto."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import assert_never

from netdfl.core.control import (
    Again,
    Broke,
    Bye,
    Crashed,
    Evaluate,
    Evaluated,
    Gone,
    Happened,
    Hello,
    ModelSaved,
    Order,
    Peers,
    Probe,
    ProbeReply,
    Progress,
    Recover,
    Report,
    Returned,
    Start,
    Stop,
)
from netdfl.core.fates import MessageCounts
from netdfl.core.types import Kind
from netdfl.transport.v1 import control_pb2 as pb


def encode_order(order: Order) -> bytes:
    """The bytes of an order."""
    data: bytes = _order(order).SerializeToString()
    return data


def _order(order: Order) -> pb.Order:
    match order:
        case Peers(addresses):
            return pb.Order(peers=pb.Peers(addresses=addresses))
        case Start(start_ns, catch_up):
            return pb.Order(start=pb.Start(start_ns=start_ns, catch_up=catch_up))
        case Gone(node, reason):
            return pb.Order(gone=pb.Gone(node_id=node, reason=reason))
        case Returned(node, address, epoch):
            return pb.Order(returned=pb.Returned(node_id=node, address=address, epoch=epoch))
        case Evaluate(round, paths):
            return pb.Order(evaluate=pb.Evaluate(round=round, paths=paths))
        case Stop(reason, grace_s):
            return pb.Order(stop=pb.Stop(reason=reason, grace_s=grace_s))
        case Probe(id):
            return pb.Order(probe=pb.Probe(id=id))
        case Recover(skip, again):
            sent = [pb.Again(dst=one.dst, round=one.round, step=one.step, kind=one.kind) for one in again]
            return pb.Order(recover=pb.Recover(skip=skip, again=sent))
    assert_never(order)


def decode_order(data: bytes) -> Order:
    """The order in `data`. Raises ValueError where there is none."""
    order = pb.Order.FromString(data)
    match order.WhichOneof("order"):
        case "peers":
            return Peers(dict(order.peers.addresses))
        case "start":
            return Start(order.start.start_ns, order.start.catch_up)
        case "gone":
            return Gone(order.gone.node_id, order.gone.reason)
        case "returned":
            return Returned(order.returned.node_id, order.returned.address, order.returned.epoch)
        case "evaluate":
            return Evaluate(order.evaluate.round, dict(order.evaluate.paths))
        case "stop":
            return Stop(order.stop.reason, order.stop.grace_s)
        case "probe":
            return Probe(order.probe.id)
        case "recover":
            again = (Again(one.dst, one.round, one.step, Kind(one.kind)) for one in order.recover.again)
            return Recover(tuple(order.recover.skip), tuple(again))
    raise ValueError("an order of no kind that is known here")


def encode_report(report: Report) -> bytes:
    """The bytes of a report."""
    data: bytes = _report(report).SerializeToString()
    return data


def _report(report: Report) -> pb.Report:
    match report:
        case Hello():
            return pb.Report(
                hello=pb.Hello(
                    node_id=report.node,
                    role=report.role,
                    pid=report.pid,
                    address=report.address,
                    scenario_hash=report.scenario_hash,
                    protocol_version=report.protocol_version,
                    epoch=report.epoch,
                )
            )
        case Progress():
            return pb.Report(
                progress=pb.Progress(
                    round=report.round,
                    ended=report.ended,
                    train_loss=report.train_loss,
                    at_ns=report.at_ns,
                    bytes_sent=report.bytes_sent,
                    messages=pb.MessageCounts(**asdict(report.messages)),
                )
            )
        case ModelSaved(round, path):
            return pb.Report(model_saved=pb.ModelSaved(round=round, path=path))
        case Happened(at_ns, round, kind, details):
            return pb.Report(happened=pb.Happened(at_ns=at_ns, round=round, kind=kind, details=json.dumps(details)))
        case Broke(at_ns, round, reason):
            return pb.Report(broke=pb.Broke(at_ns=at_ns, round=round, reason=reason))
        case Crashed():
            return pb.Report(
                crashed=pb.Crashed(
                    at_ns=report.at_ns,
                    round=report.round,
                    source=report.source,
                    at_round=report.at_round,
                    state=report.state,
                    weight=report.weight,
                )
            )
        case Evaluated(round, figures):
            return pb.Report(evaluated=pb.Evaluated(round=round, json=json.dumps(dict(figures))))
        case ProbeReply(id, account):
            return pb.Report(probe_reply=pb.ProbeReply(id=id, json=json.dumps(account)))
        case Bye(reason):
            return pb.Report(bye=pb.Bye(reason=reason))
    assert_never(report)


def decode_report(data: bytes) -> Report:
    """The report in `data`. Raises ValueError where there is none."""
    report = pb.Report.FromString(data)
    match report.WhichOneof("report"):
        case "hello":
            it = report.hello
            return Hello(
                node=it.node_id,
                role=it.role,
                pid=it.pid,
                address=it.address,
                scenario_hash=it.scenario_hash,
                protocol_version=it.protocol_version,
                epoch=it.epoch,
            )
        case "progress":
            at = report.progress
            return Progress(
                round=at.round,
                ended=at.ended,
                train_loss=at.train_loss if at.HasField("train_loss") else None,
                at_ns=at.at_ns,
                bytes_sent=at.bytes_sent,
                messages=_counts(at.messages),
            )
        case "model_saved":
            return ModelSaved(report.model_saved.round, report.model_saved.path)
        case "happened":
            what = report.happened
            return Happened(what.at_ns, what.round, what.kind, json.loads(what.details))
        case "broke":
            return Broke(report.broke.at_ns, report.broke.round, report.broke.reason)
        case "crashed":
            how = report.crashed
            return Crashed(
                at_ns=how.at_ns,
                round=how.round,
                source=how.source,
                at_round=how.at_round if how.HasField("at_round") else None,
                state=how.state,
                weight=how.weight if how.HasField("weight") else None,
            )
        case "evaluated":
            return Evaluated(report.evaluated.round, json.loads(report.evaluated.json))
        case "probe_reply":
            return ProbeReply(report.probe_reply.id, json.loads(report.probe_reply.json))
        case "bye":
            return Bye(report.bye.reason)
    raise ValueError("a report of no kind that is known here")


def _counts(told: pb.MessageCounts) -> MessageCounts:
    return MessageCounts(**{each.name: getattr(told, each.name) for each in fields(MessageCounts)})
