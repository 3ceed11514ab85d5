"""In the message path an object's attributes are assigned by itself, or in the module that defines them.

Construction is complete when a constructor returns: nothing is set on an object from elsewhere afterwards. A module's
own records, such as the account of an edge, are its own to write to.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

NETDFL = Path(__file__).resolve().parents[2] / "netdfl"
PACKAGES = ("transport", "node", "links", "worlds/simulated", "host")
EXCEPTIONS: Mapping[str, str] = {
    "host/living.py: self.clock.start_ns": "the clock of a process starts when the supervisor says when the fleet does",
    "host/node.py: self.worker.factor": "how much slower a worker is changes as the schedule says",
    "host/node.py: self.worker.cpu_s": "a finished life starts its account of the processor anew",
    "host/node.py: self.node.heartbeats": "heartbeats beat for the node that they need",
    "host/node.py: self.node.catch_up": "the start says which round it is",
    "host/node.py: self.node.without": "the start says who is missing",
    "host/node.py: self.node.waits.went_on_ns": "a pause ends, and with it the silence that it caused",
    "host/node.py: node.joining": "a later life joins as the supervisor says",
    "links/engine.py: edge.spare": "the engine keeps the unit that stands for an edge's messages with the edge",
    "links/engine.py: unit.incarnation": "a unit stands for one message after another",
    "links/engine.py: unit.attempt": "a unit stands for one message after another, and a call would cost each of them",
    "links/engine.py: unit.kind": "a unit stands for one message after another",
    "links/engine.py: unit.nbytes": "a unit stands for one message after another",
    "links/engine.py: unit.round": "a unit stands for one message after another",
    "links/engine.py: unit.step": "a unit stands for one message after another",
    "links/rules/disorder.py: unit.corrupted": "a rule marks the unit that it damages",
    "links/sharing/stage.py: unit.lost": "a rule marks the unit that it loses behind the uplink",
    "links/sharing/stage.py: unit.share_bps": "a unit takes the rate that it had along to the stage of TCP",
    "node/runtime.py: self.waits.step": "the loop says which step a node is in",
    "transport/control/rendezvous.py: call.callee": "a message of protobuf is filled in",
    "transport/control/rendezvous.py: answer.known_epoch": "a message of protobuf is filled in",
    "transport/control/rendezvous.py: answer.now_ns": "a message of protobuf is filled in",
    "transport/security/tls.py: context.check_hostname": "Python's context of TLS is configured so",
    "transport/security/tls.py: context.verify_mode": "Python's context of TLS is configured so",
    "transport/wire.py: payload.encoded": "a payload keeps its encoded form, made once for all receivers",
    "transport/wire.py: payload.checksum": "a payload keeps the checksum of its encoded form",
    "transport/wire.py: payload.size": "a payload keeps its exact length",
    "worlds/simulated/ledger.py: edge.sent": "the fleet's ledger counts in the account of an edge, without a call",
    "worlds/simulated/ledger.py: self._edge(kind, dst).delivered": "the ledger counts in the account of an edge",
    "worlds/simulated/world.py: payload.size": "a payload keeps the length that its task claims for it",
    "worlds/simulated/world.py: self.loop.on_idle": "the loop exists before what watches the run on it",
    "worlds/simulated/world.py: self.loop.source": "the loop exists before the fabric, whose clock it is",
}
"""Assignments from outside that stay, each with its reason."""


def fields(tree: ast.Module) -> set[str]:
    """Return the names of all attributes that the module's own classes declare or assign to `self`."""
    found: set[str] = set()
    for each in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        found |= {n.target.id for n in each.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
        found |= {attribute.attr for attribute in assigned(each) if is_own(attribute)}
    return found


def assigned(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Yield each attribute that is assigned or deleted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node


def is_own(attribute: ast.Attribute) -> bool:
    return isinstance(attribute.value, ast.Name) and attribute.value.id in ("self", "cls")


def from_outside(text: str) -> set[str]:
    """Return the attributes that a module assigns of objects whose classes are not its own."""
    tree = ast.parse(text)
    own = fields(tree)
    return {ast.unparse(each) for each in assigned(tree) if not is_own(each) and each.attr not in own}


def found() -> set[str]:
    places: set[str] = set()
    for package in PACKAGES:
        for path in sorted((NETDFL / package).rglob("*.py")):
            if not path.name.endswith("_pb2.py"):
                place = path.relative_to(NETDFL).as_posix()
                places |= {f"{place}: {each}" for each in from_outside(path.read_text())}
    return places


def test_no_attribute_is_assigned_from_outside_in_the_message_path() -> None:
    assert sorted(found() - set(EXCEPTIONS)) == []


def test_each_exception_is_there_and_has_a_reason() -> None:
    assert sorted(set(EXCEPTIONS) - found()) == []
    assert all(EXCEPTIONS.values())


def test_construction_in_stages_is_found() -> None:
    assert from_outside("def build(waits):\n    waits.can_ask = None\n    waits.count += 1\n    del waits.gone") == {
        "waits.can_ask",
        "waits.count",
        "waits.gone",
    }
    assert from_outside("class A:\n    def __init__(self):\n        self.x, self.y.z = 1, 2") == {"self.y.z"}


def test_a_module_writes_to_its_own_records() -> None:
    assert from_outside("class Edge:\n    sent: int = 0\ndef count(edge):\n    edge.sent += 1") == set()
