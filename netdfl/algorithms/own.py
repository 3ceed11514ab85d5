"""Checks of a user's own algorithm: of its parts, of what they return, and of what they write to during a run.

netdfl's own parts are not checked. What a mixing returns and writes to is checked only in the first rounds, as it does
the same in each. To whom it sends may change with the graph, and is checked in every round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from math import isfinite, nan
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from xxhash import xxh3_64_intdigest

from netdfl.core.errors import OwnPartError
from netdfl.core.types import Inbox, NodeId, Payload, Role, View
from netdfl.core.whose import defined_at, misgiven
from netdfl.mixing.base import Aggregation, Mixing, has_mass
from netdfl.training.base import LocalSolver, RoundStart, Update

if TYPE_CHECKING:
    from torch import Tensor

ViewOf: TypeAlias = Callable[[int, frozenset[NodeId]], View]
LOOKED_AT = 5
"""The number of first rounds in which a user's mixing is checked."""
_SENDING = ("outgoing", "give", "report_from", "report")
_MANY = 16
_NO_MESSAGES = Inbox()
_NO_VECTORS: Mapping[str, Any] = MappingProxyType({})
_NOTHING: AbstractContextManager[None] = nullcontext()


@cache
def is_own(kind: type) -> bool:
    """Return whether the class of an algorithm's part is a user's own and not netdfl's."""
    return kind.__module__.partition(".")[0] != "netdfl"


def lacking(family: str, start: object, local: object, mixing: object) -> Iterator[tuple[str, str]]:
    """Yield each part of an algorithm that lacks members of its interface, and the names of these members.

    The `family` decides on the interface of `mixing`.
    """
    parts = [("start", start, RoundStart), ("local", local, LocalSolver)]
    if family in ("gossip", "server"):
        parts.append(("mixing", mixing, Aggregation if family == "server" else Mixing))
    for name, own, interface in parts:
        members = (member for member in vars(interface) if not member.startswith("_"))
        if lacks := [member for member in members if not hasattr(own, member)]:
            yield f"{name}, {type(own).__name__},", ", ".join(lacks)


def _placed(kind: type, method: str) -> str:
    """Return ` (file:line)` of a method of a user's class, or of the class itself; empty if neither is known."""
    place = defined_at(getattr(kind, method, kind)) or defined_at(kind)
    return f" ({place})" if place else ""


def unwritten(
    mixing: Any, view: View, method: str, inbox: Inbox = _NO_MESSAGES, given: Mapping[str, Any] = _NO_VECTORS
) -> AbstractContextManager[None]:
    """Return a context in which a user's mixing must not write to a vector that it gets; else OwnPartError is raised.

    It gets the vectors of `inbox`, and those of `given`, by the names that users know. `method` is the name of the
    mixing's method that runs there. Only the first rounds are checked.
    """
    looked = view.round < LOOKED_AT and is_own(mixing.__class__)
    return _unwritten(mixing.__class__, method, inbox, given) if looked else _NOTHING


@contextmanager
def _unwritten(kind: type, method: str, inbox: Inbox, given: Mapping[str, Any]) -> Iterator[None]:
    before, writes = _digests(inbox), [writes_to(vector) for vector in given.values()]
    yield
    same = _digests(inbox) == before
    _check(kind, method, "" if same else "wrote to a vector that it received, and others may read: clone it first")
    for vector, known in zip(given.values(), writes, strict=True):
        if writes_to(vector) != known:
            name = [name for name, each in given.items() if each is vector][-1]
            _check(kind, method, f"wrote to {name}, which others may read: clone it first")


def _check(kind: type, method: str, fault: str) -> None:
    """Raise OwnPartError with the text `fault` on the mixing class `kind`, and its place, unless `fault` is empty."""
    if fault:
        raise OwnPartError(f"the mixing {kind.__name__} {fault}{_placed(kind, method)}")


def sending(mixing: Any) -> Callable[..., Any]:
    """Return the method `outgoing`; if the mixing is a user's, with checks of what it returns and writes to.

    These raise OwnPartError.
    """
    if not is_own(mixing.__class__):
        method: Callable[..., Any] = mixing.outgoing
        return method

    def outgoing(state: Any, update: Update, step: int, view: View) -> Any:
        with _unwritten(mixing.__class__, "outgoing", _NO_MESSAGES, of_update(update)):
            found = mixing.outgoing(state, update, step, view)
            _check(mixing.__class__, "outgoing", _fault_of_sent(found, view))
        return found

    return outgoing


def looked_at(mixing: Any) -> Callable[..., Any]:
    """Return the method `mix` of a mixing; if the mixing is a user's, with checks of its result and of its writes.

    The checks raise OwnPartError.
    """
    if not is_own(mixing.__class__):
        method: Callable[..., Any] = mixing.mix
        return method

    def mix(state: Any, update: Update, inbox: Inbox, step: int, view: View) -> Any:
        with _unwritten(mixing.__class__, "mix", inbox, of_update(update)):
            found = mixing.mix(state, update, inbox, step, view)
            _check(mixing.__class__, "mix", _fault_of_mixed(found, update))
        return found

    return mix


def of_update(update: Update) -> dict[str, Any]:
    """Return the vectors of an update by the names that the author of a mixing knows them by."""
    extras = update.extras if isinstance(update.extras, Mapping) else {}
    beside = {f"update.extras[{name!r}]": vector for name, vector in extras.items()}
    return {"update.before": update.before, **beside, "update.x": update.x}


def check_receivers(
    mixing: Any, receivers: Collection[NodeId], view: View, view_of: ViewOf | None = None, asks: bool = False
) -> None:
    """Check that a user's mixing sends, or `asks`, along edges of the round's graph: no node takes other messages.

    `view_of` returns the node's view of a round, given the nodes that it calls gone: it may send to these all the same.
    Raises OwnPartError.
    """
    while not is_own(mixing.__class__):
        mixing = getattr(mixing, "inner", None)
        if mixing is None:
            return
    if strangers := set(receivers).difference(_receivers(view, asks)):
        view = view if view_of is None else view_of(view.round, frozenset())
        known = _receivers(view, asks)
        strangers.difference_update(known)
        if strangers:
            stranger = next(node for node in receivers if node in strangers)
            where = "view.may_send_to" if view.in_neighbors is None else "view.out_neighbors"
            fault = (
                f"sends to {stranger!r} from node {view.node}, and the graph of round {view.round} has no such edge"
                f": send to {where}" + f", here {list(known)}" * (len(known) <= _MANY)
            )
            methods = ("peer",) if asks else ("broadcast",) if view.role is Role.SERVER else _SENDING
            _check(mixing.__class__, next((each for each in methods if hasattr(mixing, each)), ""), fault)


def _receivers(view: View, asks: bool) -> tuple[NodeId, ...]:
    """Return the nodes that take a message of this one in the round, or a question to them, which one edge allows."""
    if view.in_neighbors is None:
        return view.may_send_to
    return (*view.out_neighbors, *view.in_neighbors) if asks else view.out_neighbors


def checked_steps(mixing: Any, found: Any, most: int) -> int:
    """Return a round's number of exchanges, `found` by a mixing. Raises OwnPartError unless it is from 0 to `most`."""
    if type(found) is int and 0 <= found <= most:
        return found
    try:
        if (steps := int(found)) == found and 0 <= steps <= most:
            return steps
        limit = f", and {most} at most" * (steps > most)
    except (TypeError, ValueError, OverflowError):
        limit = ""
    raise misgiven(mixing, "num_steps", repr(found)[:80], f"return an int of 0 or more{limit}")


def checked_weight(mixing: Any, found: Any) -> float:
    """Return a node's push-sum weight, `found` by a mixing. Raises OwnPartError if nobody can divide by it.

    A method of push-sum may have a weight of 0: netdfl keeps the node's model while it has no mass.
    """
    if found == 1.0:
        return 1.0
    try:
        weight = float(found)
    except (TypeError, ValueError, OverflowError):
        weight = nan
    if isfinite(weight) and (mixing.push or has_mass(weight)):
        return weight
    raise misgiven(mixing, "weight", repr(found)[:80], "return a float by which x can be divided, 1.0 without push-sum")


def _fault_of_sent(found: Any, view: View) -> str:
    """Return what is wrong with the result of `outgoing`; empty if nothing is."""
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], Mapping):
        return f"returned {_kinds(found)} from outgoing: return (state, outbox)"
    for node, payload in found[1].items():
        if node not in range(view.num_nodes):
            return f"sends to {node!r}, and nodes are 0 to {view.num_nodes - 1}: send to view.out_neighbors"
        if not isinstance(payload, Payload):
            return f"sends a {type(payload).__name__}, which is no payload: pack(x) makes one"
    return ""


def _fault_of_mixed(found: Any, update: Update) -> str:
    """Return what is wrong with the result of `mix` with `update`; empty if nothing is."""
    if not isinstance(found, tuple) or len(found) != 3 or not isinstance(found[1], Update):
        return f"returned {_kinds(found)} from mix: return MixResult(state, update)"
    return _unlike(found[1].x, update.x)


def _kinds(found: Any) -> str:
    """Return the types in a result as text: `None`, `(NoState, Update)`."""
    if type(found) is tuple:
        return f"({', '.join(type(each).__name__ for each in found)})"
    return "None" if found is None else type(found).__name__


def _digests(inbox: Inbox) -> list[int]:
    """Return a digest of each vector of the messages, whose memory other receivers may share."""
    arrays = (array for message in inbox.messages for array in message.payload.arrays.values())
    return [xxh3_64_intdigest(array.data) for array in arrays]


def writes_to(y: Tensor) -> int:
    """Return how often a vector, or one that shares its memory, was written to in place; 0 if it has no counter."""
    return 0 if getattr(y, "is_inference", bool)() else getattr(y, "_version", 0)


def begun(start: RoundStart, found: Any, x: Tensor, writes: int) -> tuple[Any, Tensor]:
    """Return `found`, the result of the rule `start` for the mixed vector `x`, after a check if the rule is a user's.

    Raises OwnPartError if `found` is not (state, vector), or if the rule wrote to `x`, which other nodes may share:
    `writes` is the number of writes to `x` before.
    """
    checked: tuple[Any, Tensor] = found
    if is_own(type(start)):
        _check_result(start, "begin", _fault_of_begun(found, x), "return (state, x) from begin", x, writes)
    return checked


def checked(solver: LocalSolver, found: Any, y: Tensor, writes: int) -> tuple[Any, Update]:
    """Return `found`, the result of `solver` from the vector `y`, after a check if the solver is a user's.

    Raises OwnPartError if `found` is not (state, Update), or if the solver wrote to `y`, which other nodes may share:
    `writes` is the number of writes to `y` before.
    """
    checked: tuple[Any, Update] = found
    if is_own(type(solver)):
        method = "solve" if hasattr(solver, "solve") else "train"
        _check_result(solver, method, _fault_of(found, y), "return (state, Update(before, x)) from train", y, writes)
    return checked


def _check_result(part: object, method: str, fault: str, remedy: str, given: Tensor, writes: int) -> None:
    """Raise OwnPartError if the result of a user's start rule or solver has a `fault`, or if it wrote to `given`."""
    if not fault and writes_to(given) != writes:
        fault, remedy = "wrote to the vector that it was given: clone it first", "as in y = x.clone()"
    if fault:
        kind, what = type(part), "start" if method == "begin" else "local solver"
        raise OwnPartError(f"the {what} {kind.__name__} {fault}{_placed(kind, method)}", remedy)


def _fault_of_begun(found: Any, x: Tensor) -> str:
    """Return what is wrong with the result of a user's start rule for the vector `x`; empty if nothing is."""
    if not isinstance(found, tuple) or len(found) != 2:
        return f"returned {_kinds(found)}"
    return _unlike(found[1], x, "a start at")


def _fault_of(found: Any, y: Tensor) -> str:
    """Return what is wrong with the result of a local solver that began at `y`; empty if nothing is."""
    if not isinstance(found, tuple) or len(found) != 2:
        return f"returned {type(found).__name__}"
    if not isinstance(found[1], Update):
        return f"returned (state, {type(found[1]).__name__})"
    return _unlike(found[1].x, y)


def _unlike(x: Any, y: Tensor, what: str = "an update to") -> str:
    """Return a text on how the result `x` differs from the vector `y` in shape or type; empty if it does not."""
    if getattr(x, "shape", None) != y.shape:
        return f"returned {what} a vector of {tuple(getattr(x, 'shape', ()))} from one of {tuple(y.shape)}"
    if not isinstance(x, type(y)):
        return f"returned {what} a {type(x).__name__} from a {type(y).__name__}"
    if x.dtype != y.dtype:
        return f"returned {what} a vector of {x.dtype} from one of {y.dtype}"
    return "returned a vector that requires a gradient, which it may not" if getattr(x, "requires_grad", False) else ""
