"""Scheduled events on messages by name: one vanishes, or comes later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from netdfl.core.types import Kind
from netdfl.core.units import NonNegativeInt, TimeNs
from netdfl.links.schedule.compiling import Compiled, check_positive
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.when import Facts, Span
from netdfl.links.selectors import Block, parse_edges


def drop(
    facts: Facts,
    source: int,
    when: Sequence[Span],
    /,
    *,
    drop: str,
    kind: Kind | None = None,
    step: NonNegativeInt | None = None,
    attempt: NonNegativeInt | None = None,
) -> Compiled:
    """Lose messages of links by name: of one round (unless `for_rounds` says more), or those sent in a time.

    All of them, or those of a `kind` (`data`, `ack`, `request`, ...), a `step`, an `attempt` (0: not those sent again).
    """
    names = {"kind": kind, "step": step, "attempt": attempt}
    yield from _on_messages("drop", source, when, parse_edges(drop, facts.groups, facts.num_nodes).blocks, names)


def delay(
    facts: Facts,
    source: int,
    when: Sequence[Span],
    /,
    *,
    delay: str,
    by: TimeNs,
    kind: Kind | None = None,
    step: NonNegativeInt | None = None,
    attempt: NonNegativeInt | None = None,
) -> Compiled:
    """Let messages of links come later `by` a time, by name as in `drop`; nothing overtakes them on their link."""
    check_positive(by=by)
    names = {"by": by, "kind": kind, "step": step, "attempt": attempt}
    yield from _on_messages("delay", source, when, parse_edges(delay, facts.groups, facts.num_nodes).blocks, names)


def _on_messages(
    action: str, source: int, when: Sequence[Span], blocks: Sequence[Block], names: Mapping[str, object]
) -> Compiled:
    said = {name: str(value) if isinstance(value, Kind) else value for name, value in names.items()}
    parameters = {name: value for name, value in said.items() if value is not None}
    for span in when:
        if not span.by_round:
            until = {} if span.end is None else {"until_ns": span.end}
            yield CompiledEvent(
                action, source, at_ns=span.start, cause=source, blocks=tuple(blocks), parameters=parameters | until
            )
            continue
        if span.for_ns is not None:
            raise ValueError(f"{action} with at_round is about the messages of rounds, not of a time; give for_rounds")
        end = span.start + 1 if span.end is None else span.end
        yield CompiledEvent(
            action,
            source,
            at_round=span.start,
            until_round=end,
            cause=source,
            blocks=tuple(blocks),
            parameters=parameters,
        )
