"""Random fleets whose truth is decided without the diagnosis: what a run says of them is right.

python -m tests.soak.decided_fleets --seed 7 [--count 5000]    # goes on where it was left
python -m tests.soak.decided_fleets --seed 7 --only 18         # one of them, in full

A fleet is drawn (`fleets/drawing.py`), run, and played on: nothing that a diagnosis says ends it, for ten times its
longest deadline and past every scripted return (`fleets/playing.py`). Where it then stands, and the record, decide the
truth (`fleets/truth.py`, `fleets/rules.py`). Right is: it ends or not; the nodes with which a stall begins, whom they
lack and why; the rule that lost or held the message; and each remedy that is named helps in a run of its own
(`fleets/judging.py`). Rows lie in `runs/decided_fleets`, for a seed and what netdfl and these modules are; at most 16
of 5,000 may be wrong, and none healthy and ended, none passed that did not finish, none too long.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.soak.fleets.drawing import draw_fleet
from tests.soak.fleets.judging import Judged, judge
from tests.soak.fleets.playing import Player
from tests.soak.tally import ROOT, Count, append

COUNT, MOST_WRONG = 5000, 16
NEVER = ("healthy ended", "passed", "too long", "broke")
"""What may not be wrong of any fleet."""
FOLDER = ROOT / "runs" / "decided_fleets"


def row_of(seed: int, number: int, player: Player) -> dict[str, Any]:
    """What was found of one fleet."""
    fleet = draw_fleet(seed, number)
    judged = judge(fleet.scenario, player)
    wrong = [*judged.wrong, *(("undecided", odd) for odd in judged.truth.odd)]
    kind, what = wrong[0] if wrong else ("", "")
    return {
        "number": number,
        "family": fleet.family,
        "ends": judged.truth.ends,
        "wrong": kind,
        "what": what,
        "tried": judged.tried,
        "cpu_s": round(judged.cpu_s, 3),
    }


def show(seed: int, number: int) -> None:
    """All of one fleet: what it is, what was told, what is true."""
    fleet = draw_fleet(seed, number)
    judged: Judged = judge(fleet.scenario, Player())
    print(json.dumps(fleet.plain, indent=1))
    for stall in judged.played.run.stalls:
        how = [word for word in ("permanent", "over") if getattr(stall, word)] + [stall.ended_by] * bool(stall.ended_by)
        print(f"told ({', '.join(how)}): {stall.text}")
    print("verdict:", judged.played.run.verdict, *judged.played.run.reasons)
    print("truth:", judged.truth)
    for kind, what in judged.wrong:
        print(f"wrong, {kind}: {what}")


def made_by() -> str:
    """What a row depends on."""
    files = [*(ROOT / "netdfl").rglob("*.py"), *(ROOT / "tests/soak/fleets").glob("*.py")]
    return sha256(b"\0".join(file.read_bytes() for file in sorted(files))).hexdigest()[:16]


def read(file: Path) -> Iterator[dict[str, Any]]:
    """The rows so far; a last line that was cut off is made anew."""
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return


def hunt(seed: int, count: int) -> list[dict[str, Any]]:
    """The rows of `count` fleets, those that are there already first."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    file, player = FOLDER / f"{seed}-{made_by()}.jsonl", Player()
    rows = [row for row in read(file) if row["number"] < count]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = {row["number"] for row in rows}
    for number in range(count):
        if number not in done:
            rows.append(row_of(seed, number, player))
            with file.open("a") as lines:
                lines.write(json.dumps(rows[-1]) + "\n")
            if rows[-1]["wrong"]:
                print(f"{number} {rows[-1]['family']}: {rows[-1]['wrong']}: {rows[-1]['what']}", flush=True)
    return rows


def summary(rows: list[dict[str, Any]]) -> str:
    """What is told of all of them."""
    ends, tried = sum(row["ends"] for row in rows), sum(row["tried"] for row in rows)
    cpu_s = sum(row["cpu_s"] for row in rows) / max(1, len(rows))
    wrong = Counter(row["wrong"] for row in rows if row["wrong"])
    kinds = ", ".join(f"{number} {kind}" for kind, number in wrong.most_common()) or "none"
    return f"{ends} end, {len(rows) - ends} do not, {tried} remedies tried, {cpu_s:.2f} CPU s each; wrong: {kinds}"


def is_right(rows: list[dict[str, Any]]) -> bool:
    """Whether so few are wrong that 99.5 % is shown, and none of them in a way that none may be."""
    wrong = [row["wrong"] for row in rows if row["wrong"]]
    return len(wrong) * COUNT <= MOST_WRONG * len(rows) and not set(wrong) & set(NEVER)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="fleets with decided truth")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--only", type=int)
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    if args.only is not None:
        show(args.seed, args.only)
        return
    rows = hunt(args.seed, args.count)
    failures = [f"{row['number']} {row['family']}: {row['wrong']}: {row['what']}" for row in rows if row["wrong"]]
    told = summary(rows)
    print(told)
    append(f"what a run says of a fleet with decided truth ({told})", Count(len(rows), failures), args.seed)
    sys.exit(not is_right(rows))


if __name__ == "__main__":
    main()
