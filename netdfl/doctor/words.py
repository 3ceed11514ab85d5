"""Findings as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from netdfl.doctor.checks import Finding, State


def lines(found: Sequence[Finding]) -> Iterator[str]:
    """A line a finding, the remedy below it, and at the end how many are bad."""
    place = max((len(each.machine) for each in found), default=0)
    what = max((len(each.what) for each in found), default=0)
    for each in found:
        yield f"{each.state.value:8} {each.machine:{place}}  {each.what:{what}}  {each.said}"
        if each.remedy:
            yield f"{'':8} {'':{place}}  {'':{what}}  → {each.remedy}"
    counted = {state: sum(each.state is state for each in found) for state in (State.FAIL, State.WARNING)}
    if counted[State.FAIL]:
        yield f"{counted[State.FAIL]} must be mended before a fleet runs here"
    elif counted[State.WARNING]:
        yield f"a fleet can run; {counted[State.WARNING]} warnings"
    else:
        yield "all is well"
