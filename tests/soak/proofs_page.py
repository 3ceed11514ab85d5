"""Write docs/studies/proofs.md, the table of what each method survives: `python -m tests.soak.proofs_page`."""

from __future__ import annotations

import re
from typing import Any

from tests.soak.found_proofs import counterexamples, representatives
from tests.soak.proofs import BOUNDS, TWO_AND_ONE, cells, read, word_of
from tests.soak.tally import ROOT

PAGE = ROOT / "docs/studies/proofs.md"
ASSUMPTIONS: dict[str, dict[str, str]] = {
    "loses weight": {
        "loss": "Push-sum: the mixing matrix is column-stochastic, so what a node keeps and sends is all that it had. "
        "A lost share is in no state.",
        "crash": "Push-sum: no node leaves. A share that was sent to a node that is gone for good is in no state, and "
        "its sender can't take it back.",
        "return_without_state": "Push-sum: states last. A node that begins anew has weight 0; what it held is in no "
        "state.",
    },
    "stalls": {
        "crash": "Methods with a server: the server never fails. Here it is the node that crashes.",
        "return_without_state": "All nodes make the same rounds. A node without its state begins at a neighbor's "
        "round, and nodes that are behind wait for rounds that it won't make.",
        "return": "The same nodes take part in each round. What was sent while a node was down, or not sent to it as "
        "it was gone, doesn't come when it is back.",
        "loss": "Each round mixes by all entries of the matrix: every message arrives. Without a deadline the receiver "
        "waits for the lost one.",
    },
}
"""What the papers' analyses assume, by what breaks and by the fault. Of several faults the first here counts."""
HEAD = """# Which methods survive which faults, proven

Each cell is a method on a graph, with a delivery and a wait, over three rounds of a quadratic:
[every schedule](../prove.md) of up to two losses, of one crash, and of one loss with one crash. `survives 172` is a
proof about 172 schedules, for these times and this seed; `stalls (1)` says that one fault suffices. `loses weight` is
about push-sum, and `miscounts` about its record, where delivery is acknowledged. Where several words stand, the first
is about who waits and finishes, the others about the weight. `too large` says how many schedules kept the property
before the time was over.

`python -m tests.soak.proofs` makes the rows, which lie in [proofs.json](proofs.json); {cells} cells of {all_of} are
there, made in {hours:.2f} CPU hours. They have the faults of each counterexample, too, and the tests play a sample of
these.

## Which assumption breaks

The papers' analyses assume a network and nodes without such faults (`netdfl list algorithms` names the papers). Each
counterexample is of one of these kinds, and one of each is a scenario in `scenarios/found/proofs`: `netdfl run` shows
it. `python -m tests.soak.found_proofs` writes them, and the tests run each.

{kinds}

## In short

How many cells, of all methods and graphs, survive: nobody waits for good, and all finish.

{short}

## All cells

{long}

## Two losses with one crash

Six cells alone, as there are very many schedules.

{two}

## Combinations that are impossible

{reasons}
"""


def table(rows: list[dict[str, Any]]) -> str:
    """The page."""
    told = [row for row in rows if "not" not in row]
    return HEAD.format(
        cells=len(rows),
        all_of=len(list(cells())),
        hours=sum(row.get("cpu_s", 0.0) for row in rows) / 3600,
        kinds=_kinds(),
        short=_short(told),
        long=_lines(("method", "graph"), BOUNDS, [row for row in told if len(row["cell"]) == 5]),
        two=_lines(("method", "graph"), (TWO_AND_ONE,), [row for row in told if len(row["cell"]) > 5]),
        reasons=_reasons([row for row in rows if "not" in row]),
    )


def _kinds() -> str:
    """Each kind of counterexample, by what it needs, and the assumption that does not hold under it."""
    methods: dict[str, dict[str, None]] = {}
    for each in counterexamples():
        methods.setdefault(each.kind, {})[each.cell.method] = None
    lines = []
    for kind, first in representatives().items():
        of = list(methods[kind])
        names = f"{', '.join(of[:3])} and {len(of) - 3} more" if len(of) > 4 else ", ".join(of)
        broken = ASSUMPTIONS[first.told["word"]]
        broken_by = next(fault for fault in broken if fault in first.faults)
        lines.append([f"[{kind}](../../scenarios/found/proofs/{kind}.yaml)", names, broken[broken_by]])
    return drawn(("what breaks, by which faults, under which delivery", "methods", "the assumption that breaks"), lines)


def _reasons(rows: list[dict[str, Any]]) -> str:
    """What can't be put together, each reason once, with the graph and the methods that it is about."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        method, graph = row["cell"][:2]
        for line in row["not"].splitlines():
            whole = line.removeprefix("scenario: ").replace(method, "METHOD")
            reason = re.split(", (?:or )?(?:use|set) ", whole)[0]
            found.setdefault((graph, reason), {})[method] = None
    return "\n".join(
        f"- {graph}: {reason}. METHOD: {', '.join(methods)}." for (graph, reason), methods in found.items()
    )


def _short(told: list[dict[str, Any]]) -> str:
    """How many cells survive, by delivery, wait and bound."""
    counts: dict[tuple[str, ...], dict[str, list[bool]]] = {}
    for row in told:
        for bound, answers in row["bounds"].items() if len(row["cell"]) == 5 else ():
            place = counts.setdefault(tuple(_place(row)[2:]), {})
            place.setdefault(bound, []).append(answers["stall"]["word"] == "survives")
    lines = [[*place, *(f"{sum(kept)} of {len(kept)}" for kept in of.values())] for place, of in sorted(counts.items())]
    return drawn(("delivery", "wait", *BOUNDS), lines)


def _lines(first: tuple[str, ...], bounds: tuple[str, ...], rows: list[dict[str, Any]]) -> str:
    lines = [[*_place(row), *(word_of(each) for each in row["bounds"].values())] for row in rows]
    return drawn((*first, "delivery", "wait", *bounds), lines)


def drawn(head: tuple[str, ...], lines: list[list[str]]) -> str:
    rows = [list(head), ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _place(row: dict[str, Any]) -> list[str]:
    method, graph, delivery, wait, detector = row["cell"][:5]
    return [method, graph, delivery, wait if detector == "oracle" else f"{wait}, heartbeats"]


def main() -> None:
    """Write the page of the rows that are there."""
    PAGE.write_text(table(read()))


if __name__ == "__main__":
    main()
