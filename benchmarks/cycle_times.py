"""Cycle times of overlays between silos: what docs/studies/cycle_times.md shows.

    python benchmarks/cycle_times.py [--gml FOLDER] [--only NAME] [--train] [--write]

Gaia and AWS North America are made of the places of their cities. FOLDER has the files of others, which are not
part of netdfl: gaia.gml, amazon_us.gml, geantdistance.gml, exodus.gml and ebone.gml, as in graph_utils/data of
github.com/omarfoq/communication-in-cross-silo-fl; each that is there is a row, or only the one called NAME. Prints
the rows; `--write` puts them into docs/studies/cycle_times.json in place of the rows of these networks, and both tables
into the page. `--train` makes the rows of training instead, which takes some minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from figures import about

from netdfl.study.cycle_times.fleets import (
    Overlay,
    by_formula,
    over_shared_lines,
    time_of_a_round,
    time_to_target,
    trained_over_shared_lines,
)
from netdfl.study.cycle_times.max_plus import cycle_time
from netdfl.study.cycle_times.overlays import (
    Assumptions,
    Ways,
    delta_mbst,
    drawn_rounds,
    matchings,
    mean_of_longest,
    ring,
    star_time,
)
from netdfl.study.cycle_times.silos import AWS_NORTH_AMERICA, GAIA, Silos, between_all, read_silos

PAGE = Path(__file__).resolve().parents[1] / "docs" / "studies" / "cycle_times.md"
ROWS = PAGE.with_suffix(".json")
GIVEN = Assumptions()
FILES = {
    "Gaia": "gaia",
    "AWS North America": "amazon_us",
    "Géant": "geantdistance",
    "Exodus": "exodus",
    "Ebone": "ebone",
}
PUBLISHED: Mapping[str, Mapping[str, float]] = {
    "Gaia": {"star": 390.9, "MATCHA-like": 227.4, "delta-MBST": 138.1, "ring": 118.1},
    "AWS North America": {"star": 288.1, "MATCHA-like": 123.9, "delta-MBST": 89.7, "ring": 81.3},
    "Géant": {"star": 622.3, "MATCHA-like": 107.9, "delta-MBST": 101.0, "ring": 109.0},
    "Exodus": {"star": 911.9, "MATCHA-like": 145.7, "delta-MBST": 145.3, "ring": 103.9},
    "Ebone": {"star": 901.7, "MATCHA-like": 122.5, "delta-MBST": 121.8, "ring": 95.3},
}
"""Cycle times in ms for iNaturalist, as T. Do et al. print them (arXiv:2207.09657, table 3), by the programs."""
SPEED_UP = {"Gaia": 2.65, "AWS North America": 3.41, "Géant": 4.85, "Exodus": 8.78, "Ebone": 8.83}
"""How much sooner a ring trains iNaturalist than a star, as the authors print it."""
MATCHA_ROUNDS, SPAN, TARGET, MOST_ROUNDS = 1000, 20, 0.85, 160
MISS = 0.01


def networks(folder: Path | None, only: str | None) -> Iterator[tuple[str, str, Silos]]:
    """Yield the name, the source and the sites of each network."""
    made = {"Gaia": GAIA, "AWS North America": AWS_NORTH_AMERICA}
    for name, file in FILES.items():
        if only in (None, name):
            if name in made:
                yield name, "places", between_all(made[name])
            if folder is not None and (folder / f"{file}.gml").exists():
                yield name, "file", read_silos(folder / f"{file}.gml")


def overlays(silos: Silos, ways: Ways) -> Iterator[tuple[str, Overlay, Fraction]]:
    """Yield each overlay with its name and the time of a round by the formula, in ns."""
    yield "star", Overlay(server=True), star_time(ways)
    drawn = drawn_rounds(matchings(silos.km), MATCHA_ROUNDS)
    yield "MATCHA-like", Overlay(drawn), mean_of_longest(ways, drawn)
    for name, edges in (("delta-MBST", delta_mbst(ways)), ("ring", ring(ways))):
        yield name, Overlay([edges]), cycle_time(ways.delays(edges))


def ms(time_ns: Fraction | float) -> str:
    """Write nanoseconds as milliseconds."""
    return f"{float(time_ns) / 1e6:,.1f}"


def cycle_rows(folder: Path | None, only: str | None) -> Iterator[list[str]]:
    """Yield the rows of the table of cycle times."""
    for name, source, silos in networks(folder, only):
        ways = Ways(silos, GIVEN)
        for overlay_name, overlay, formula in overlays(silos, ways):
            span = silos.num_sites if overlay_name == "ring" else SPAN
            exact = "–"
            if len(overlay.rounds) <= 1:
                simulated, _ = time_of_a_round(by_formula(overlay, ways, 3 * silos.num_sites + 1), span)
                exact = f"{float(simulated - formula):g} ns"
            short = Overlay(overlay.rounds[: 3 * SPAN], overlay.server)
            num_rounds = 3 * silos.num_sites if overlay_name == "ring" else 3 * SPAN
            shared, narrow = time_of_a_round(over_shared_lines(short, silos, num_rounds, GIVEN), span)
            printed = PUBLISHED[name][overlay_name]
            off = float(formula) / 1e6 / printed - 1
            miss = f"{off:+.1%}" if abs(off) > MISS else ""
            row = [f"{name}, {source}", overlay_name, f"{printed:,.1f}", ms(formula), miss, exact, ms(shared)]
            yield [*row, f"{float(shared / formula):.2f}", "access" if "link of node" in narrow else "a line"]
            print(row, narrow, file=sys.stderr, flush=True)


def training_rows(folder: Path | None, only: str | None) -> Iterator[list[str]]:
    """Yield the rows of the table of training to a target."""
    for name, source, silos in networks(folder, only):
        if source == "places" and folder is not None:
            continue
        ways, row, times = Ways(silos, GIVEN), [name], dict[str, float]()
        for overlay_name, overlay, _ in overlays(silos, ways):
            short = Overlay(overlay.rounds[:MOST_ROUNDS], overlay.server)
            found = time_to_target(trained_over_shared_lines(short, silos, MOST_ROUNDS, GIVEN), TARGET)
            row.append("not reached" if found is None else f"{found[1]:.2f} s, {found[0]} rounds")
            if found is not None:
                times[overlay_name] = found[1]
        both = times.keys() >= {"ring", "star"}
        yield [*row, f"{times['star'] / times['ring']:.2f}" if both else "–", f"{SPEED_UP[name]:.2f}"]
        print(row, file=sys.stderr, flush=True)


HEADS = {
    "cycles": [
        "network", "overlay", "published, ms", "formula, ms", "misses by", "simulated less formula",
        "lines really shared, ms", "times the formula", "bottleneck",
    ],
    "training": ["network", "star", "MATCHA-like", "delta-MBST", "ring", "star over ring", "published for iNaturalist"],
}  # fmt: skip


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write(name: str, rows: list[list[str]]) -> None:
    """Put the rows into the file of all rows, in the order of the networks, and both tables into the page."""
    kept: dict[str, list[list[str]]] = json.loads(ROWS.read_text(encoding="utf-8")) if ROWS.exists() else {}
    new = {_network(row) for row in rows}
    whole = [row for row in kept.get(name, []) if _network(row) not in new] + rows
    order = list(FILES)
    kept[name] = sorted(whole, key=lambda row: order.index(_network(row)))
    ROWS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    for each, found in kept.items():
        begin, end = f"<!-- {each} -->\n", f"<!-- end of {each} -->"
        before, _, rest = page.partition(begin)
        page = before + begin + "\n" + table(HEADS[each], found) + "\n" + end + rest.partition(end)[2]
    PAGE.write_text(page, encoding="utf-8")


def _network(row: Sequence[str]) -> str:
    return row[0].partition(", ")[0]


def main() -> None:
    """Make rows, print them, and with `--write` put them into the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gml", type=Path)
    parser.add_argument("--only", choices=FILES)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    name = "training" if args.train else "cycles"
    rows = list(training_rows(args.gml, args.only) if args.train else cycle_rows(args.gml, args.only))
    print(table(HEADS[name], rows))
    print(about(f"{len(rows)} rows"), file=sys.stderr)
    if args.write:
        write(name, rows)


if __name__ == "__main__":
    main()
