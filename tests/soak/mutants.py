"""Plant small faults and ask the nearest tests: 60 mutants a package, drawn by seed, above 95 % must be noticed.

python -m tests.soak.mutants --seed 1 [--jobs 2] [--packages topology,links]    # goes on where it was left

Our own, as neither kept tool draws by seed from packages: mutmut 3 copies the tree, mutates functions alone and tries
every mutant; cosmic-ray writes each into the file itself and starts pytest, and with it torch (4 s), for each. Here a
mutant is compiled by an import hook in a fork of a process that has imported torch once: about a second each, nothing
on disk changes, and others may work in the tree meanwhile. `mutations.py` says what is planted, `nearest.py` which
tests are asked, `equivalents.json` which changes change nothing that anyone could see, and why.
A test that fails, a mutant that can't be imported, or one that takes too long was noticed. What is kept in
`build/mutants` (which tests enter which lines, and each mutant's end) may be thrown away at any time. A record of what
a test enters is made anew where its file changes or what lies beside it, which takes a second a file, a quarter of an
hour in all. Where code changes meanwhile its lines have other names: then those are asked that entered its function.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import CodeType

import pytest

from tests.soak.forks import BROKE, Ended, Job, forked, import_once, run_tests
from tests.soak.mutations import Mutation, mutations
from tests.soak.nearest import Blocks, Nearest, Planted, Recorder, read, state_of, telling, told
from tests.soak.tally import ROOT, Count, append

PACKAGES = ("algorithms", "mixing", "compression", "links", "topology", "diagnosis", "node", "training")
RUNS = ("simulated", "explore", "scenarios", "worlds", "replaying", "study", "supervisor", "host")
READ = ("underlay", "transport", "record", "scenario", "running", "report", "exports")
ALSO = RUNS + READ
"""Folders of tests that may be nearest, beside the packages' own: whole runs, and what is read before and after."""
NOT_HERE = {"processes", "containers", "grpc", "tls", "interrupt", "forkserver"}
"""Words in the names of test files that start processes, in which nothing would be planted."""
PLUGINS = ("pytest_asyncio", "pytest_timeout", "anyio.pytest_plugin", "xdist.plugin", "_hypothesis_pytestplugin")
IMPORTS = (
    *PLUGINS,
    "torch",
    "numpy.random",
    "networkx",
    "pydantic",
    "grpc",
    "google.protobuf",
    "ruamel.yaml",
    "xxhash",
)
DEFINED = (
    "tests/scenario/test_cli.py::test_the_json_schema_is_up_to_date",
    "tests/algorithms/test_defaults_by_hand.py::test_what_is_left_out_is_as_the_table_says",
    "tests/training/test_training_defaults.py::test_what_is_left_out_of_a_part_of_training_is_as_the_table_says",
    "tests/training/test_training_defaults.py::test_what_is_left_out_of_a_call_is_as_the_table_says",
    "tests/training/internals/test_limits_of_training.py::test_limits_lie_where_the_table_says_and_there_are_no_others",
    "tests/training/test_training_defaults.py::test_parts_are_listed_in_the_order_in_which_they_are_explained",
)
"""Asked about what is said outside of functions, as defaults and bounds are, too: no test enters that."""
NUMBERS = "test_numbers_of_"
"""How the names of a package's own test files begin that are asked about it, too."""
COUNT = 60
LIMIT_S = 120.0
"""A mutant whose tests take longer is noticed."""
ENOUGH, MOST_EQUIVALENT = 0.95, 0.10
NOTICED = {"killed", "timeout"}
PASSED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
FIRST = 2
STOPPED = (BROKE, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
"""The end of a fork that somebody else ended, or whose file has changed meanwhile, which says nothing of its tests."""


@dataclass(frozen=True)
class Place:
    """Where things lie: `root` holds the package `package` and `tests`; what is kept goes to `kept`."""

    root: Path
    package: str
    kept: Path
    equivalents: Path
    cpu_s: float = LIMIT_S

    def modules(self, part: str = "") -> dict[str, Path]:
        """The modules of a part of the package by their names."""
        files = sorted((self.root / self.package / part).rglob("*.py"))
        return {self.name(file): file for file in files if file.name != "__init__.py"}

    def name(self, file: Path) -> str:
        """A module's name."""
        return ".".join(file.relative_to(self.root).with_suffix("").parts)

    def output(self, name: str) -> Path:
        """Where a fork's output goes."""
        self.kept.mkdir(parents=True, exist_ok=True)
        return self.kept / f"{sha256(name.encode()).hexdigest()[:12]}.txt"


HERE = Place(ROOT, "netdfl", ROOT / "build/mutants", ROOT / "tests/soak/equivalents.json")


def drawn(place: Place, part: str, count: int, seed: int) -> list[Mutation]:
    """`count` mutations of a part; those of lines that stay are the same when others change."""
    every = [
        mutation
        for file in place.modules(part).values()
        for mutation in mutations(str(file.relative_to(place.root)), file.read_bytes())
    ]
    return sorted(every, key=lambda each: sha256(f"{seed} {each.key}".encode()).digest())[:count]


def record(place: Place, folders: Sequence[str], jobs: int, *, as_recorded: bool = False) -> Nearest:
    """What each test enters, of each file as it is now, or as it was when it was recorded last."""
    files = [
        file
        for folder in folders
        for file in sorted((place.root / "tests" / folder).rglob("test_*.py"))
        if NOT_HERE.isdisjoint(file.stem.split("_"))
    ]
    (place.kept / "records").mkdir(parents=True, exist_ok=True)
    kept = {file: place.kept / "records" / f"{file.parent.name}-{file.stem}-{state_of(file)}.json" for file in files}
    if as_recorded:
        kept = {file: _last(now) for file, now in kept.items()}
    anew = [file for file in files if not kept[file].exists()]
    code = telling(place.modules()) if anew else {}
    missing = [
        Job(file, partial(_record, place, file, kept[file], code), place.output(str(file)), 600.0, 1200.0)
        for file in anew
    ]
    for file, ended in forked(missing, jobs):
        print(f"{file.relative_to(place.root)}: exit code {ended.code}, {ended.cpu_s:.1f} s", flush=True)
    return Nearest([read(each) for each in kept.values() if each.exists()])


def _last(now: Path) -> Path:
    earlier = now.parent.glob(f"{now.stem.rpartition('-')[0]}-*.json")
    return now if now.exists() else max(earlier, key=lambda file: file.stat().st_mtime, default=now)


def _record(place: Place, file: Path, into: Path, code: Mapping[str, CodeType]) -> int:
    recorder = Recorder()
    told(place.modules(), code, recorder).hook()
    name = str(file.relative_to(place.root))
    code = run_tests(place.root, [name], plugins=[recorder])
    if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        into.write_text(json.dumps(recorder.record(name)))
    return code


def asked(place: Place, mutation: Mutation, nearest: Nearest) -> list[str]:
    """The tests that are asked about a mutation."""
    file = place.root / mutation.file
    block = Blocks(place.name(file), file.read_bytes()).lines.get(mutation.line, "")
    own = f"tests/{Path(mutation.file).parts[1]}/"
    found = nearest.to(place.name(file), block, mutation.function, own)
    defined = [] if block else [*filter(nearest.knows, DEFINED), *nearest.of_files(own, NUMBERS)]
    return [*(test for test in defined if test not in found), *found]


class Chosen:
    """A plugin of pytest that runs the tests chosen, in their order, and tells which one failed."""

    def __init__(self, tests: Sequence[str]) -> None:
        """Choose `tests`."""
        self.order = {test: place for place, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the others out; what a mutant takes away is not asked."""
        items[:] = sorted(
            (item for item in items if item.nodeid in self.order), key=lambda item: self.order[item.nodeid]
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell the one that notices."""
        if report.failed:
            print(f"\nnoticed by {report.nodeid}", flush=True)


def _try(place: Place, mutation: Mutation | None, tests: Sequence[str]) -> int:
    if mutation is not None:
        file = place.root / mutation.file
        planted = mutation.applied(file.read_bytes())
        Planted({place.name(file): file}, lambda module, source: planted).hook()
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    code = 0
    for asked in (files[:FIRST], files[FIRST:]):  # few first: what is imported costs more than most tests
        if asked and code in PASSED:
            code = run_tests(place.root, asked, "-x", plugins=[Chosen(tests)])
    return code


def outcome(ended: Ended) -> str:
    """What became of a mutant: no tests failed or were found, or one did, or it could not be imported."""
    if ended.code is None:
        return "timeout"
    if ended.code in STOPPED:
        return "stopped"
    return "survived" if ended.code in PASSED else "killed"


class Results:
    """The mutants that were tried, one line each; one that survived is tried again when other tests are nearest."""

    def __init__(self, file: Path) -> None:
        """Go on with what `file` says."""
        self.file = file
        lines = file.read_text().splitlines() if file.exists() else []
        self.rows = {row["key"]: row for row in map(json.loads, lines)}

    def of(self, mutation: Mutation, tests: Sequence[str]) -> str | None:
        """What became of it."""
        row = self.rows.get(mutation.key)
        same = row is not None and row["outcome"] == "survived" and row["tests"] == _state(tests)
        return row["outcome"] if row is not None and (same or row["outcome"] in NOTICED) else None

    def keep(self, mutation: Mutation, tests: Sequence[str], ended: Ended, by: str) -> str:
        """Take one down."""
        row = {"key": mutation.key, "outcome": outcome(ended), "by": by, "cpu_s": round(ended.cpu_s, 2)}
        self.rows[mutation.key] = row | {"tests": _state(tests)}
        with self.file.open("a") as file:
            file.write(json.dumps(self.rows[mutation.key]) + "\n")
        return outcome(ended)


def _state(tests: Sequence[str]) -> str:
    return sha256("\n".join(tests).encode()).hexdigest()[:12]


def equivalents(place: Place) -> dict[tuple[str, str, str], str]:
    """The reason why a change changes nothing, by file, the line's text and the change."""
    listed = json.loads(place.equivalents.read_text()) if place.equivalents.exists() else []
    return {(each["file"], each["text"], each["what"]): each["reason"] for each in listed}


@dataclass
class Score:
    """How many of a part's mutants were noticed."""

    drawn: int = 0
    equivalent: int = 0
    survivors: list[str] | None = None
    cpu_s: float = 0.0

    def __str__(self) -> str:
        asked = self.drawn - self.equivalent
        return f"{asked - len(self.survivors or ())}/{asked}, {self.equivalent} equivalent"


def try_all(place: Place, chosen: Sequence[Mutation], nearest: Nearest, jobs: int) -> Score:
    """Try each mutant that is not known to change nothing, and say what became of it."""
    results, same = Results(place.kept / "results.jsonl"), equivalents(place)
    score = Score(len(chosen), survivors=[])
    todo = []
    for mutation in chosen:
        if (mutation.file, mutation.text, mutation.what) in same:
            score.equivalent += 1
            continue
        tests = asked(place, mutation, nearest)
        if (known := results.of(mutation, tests)) is None:
            todo.append((mutation, tests))
        elif known == "survived":
            _tell(score, mutation, known, tests)
    for (mutation, tests), ended in forked(_jobs(place, todo, nearest), jobs):
        text = place.output(mutation.key).read_text(errors="replace")
        by = next((line[11:] for line in text.splitlines() if line.startswith("noticed by ")), "")
        score.cpu_s += ended.cpu_s
        _tell(score, mutation, results.keep(mutation, tests, ended, by), tests, by, ended.cpu_s)
        if by or ended.code is None:
            place.output(mutation.key).unlink()
    return score


def _jobs(
    place: Place, todo: Sequence[tuple[Mutation, list[str]]], nearest: Nearest
) -> Iterator[Job[tuple[Mutation, list[str]]]]:
    for mutation, tests in todo:
        cpu_s = min(place.cpu_s, 10.0 + 4 * nearest.seconds(tests))
        wall_s = min(LIMIT_S, 45.0 + 10 * nearest.seconds(tests)) * _crowded()
        work, out = partial(_try, place, mutation, tests), place.output(mutation.key)
        yield Job((mutation, tests), work, out, cpu_s, wall_s)


def _crowded() -> float:
    """How much longer all takes as others work on this machine: being late because of them says nothing of a mutant."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _tell(score: Score, mutation: Mutation, what: str, tests: Sequence[str], by: str = "", cpu_s: float = 0) -> None:
    where = f"{mutation.file}:{mutation.line}"
    if what not in NOTICED:
        assert score.survivors is not None
        score.survivors.append(f"{where}: {mutation.what}")
    print(f"{what:8} {cpu_s:5.1f} s {where} [{mutation.text}] {mutation.what} ({len(tests)} asked) {by}", flush=True)


def check_unchanged(place: Place, nearest: Nearest, chosen: Sequence[Mutation]) -> None:
    """Stop where tests fail without a fault, or every mutant would count as noticed."""
    tests = asked(place, chosen[0], nearest)
    limit_s = LIMIT_S + 4 * nearest.seconds(tests)
    job = Job("", partial(_try, place, None, tests), place.output("unchanged"), limit_s, limit_s * _crowded())
    ((_, ended),) = forked([job], 1)
    if ended.code != 0:
        sys.exit(f"without a fault the tests end with exit code {ended.code}: {place.output('unchanged')}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--packages", default=",".join(PACKAGES))
    parser.add_argument("--as-recorded", action="store_true", help="do not look anew at tests that changed")
    args = parser.parse_args()
    import_once(IMPORTS)
    nearest = record(HERE, PACKAGES + ALSO, args.jobs, as_recorded=args.as_recorded)
    scores = {}
    for part in args.packages.split(","):
        chosen = drawn(HERE, part, args.count, args.seed)
        check_unchanged(HERE, nearest, chosen)
        scores[part] = try_all(HERE, chosen, nearest, args.jobs)
        print(f"{part}: {scores[part]}; {scores[part].cpu_s:.0f} s", flush=True)
    drawn_, same = sum(each.drawn for each in scores.values()), sum(each.equivalent for each in scores.values())
    survivors = [each for score in scores.values() for each in score.survivors or ()]
    good = len(survivors) < (1 - ENOUGH) * (drawn_ - same) and same <= MOST_EQUIVALENT * drawn_
    if set(scores) == set(PACKAGES):
        parts = "; ".join(f"{part} {score}" for part, score in scores.items())
        what = f"mutants are noticed by the nearest tests, {args.count} drawn a package"
        append(f"{what} ({parts})", Count(drawn_ - same, survivors), args.seed)
    sys.exit(not good)


if __name__ == "__main__":
    main()
