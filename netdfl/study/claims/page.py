"""The table of claims on the page `docs/reproduction.md`, made from the committed results of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from netdfl.core.errors import InputError
from netdfl.core.files import writing
from netdfl.study.claims.deciding import TOO_SMALL, Decision
from netdfl.study.claims.given import Claim
from netdfl.study.claims.rows import proof_name
from netdfl.study.claims.work import ClaimStudy
from netdfl.study.summary import markdown_table

BEGIN, END = "<!-- claims: netdfl claims table -->", "<!-- end of claims -->"
HEADINGS = (
    "claim",
    "printed in",
    "printed gain",
    "measured on",
    "gain (95 % interval)",
    "seeds",
    "p",
    "verdict",
    "cost",
)


def table(study: ClaimStudy) -> str:
    """Return the table of all claims in Markdown, with CPU time spent and needed."""
    decisions = study.decisions()
    rows = [list(_row(study, name, claim, decisions[name])) for name, claim in study.rule.claims.items()]
    spent = f"{study.spent_s() / 3600:.1f} of {study.rule.budget_s / 3600:g} hours of CPU time are spent."
    open_ones = [name for name, decision in decisions.items() if decision.word == "undecided"]
    verdicts = f"{spent} {len(open_ones)} of {len(decisions)} claims are undecided."
    return f"{markdown_table(HEADINGS, rows)}\n{verdicts}\n{_proved(study)}"


def _proved(study: ClaimStudy) -> str:
    """Return a table of how many rows (results of runs) have a proof, by version of the code and kind of rounding.

    A proof is a short test run, whose event log shows whether the code still computes the same numbers.
    """
    proofs = study.rows.proofs()
    of_rows = [proofs.get(proof_name(row.file, row.method, row.arithmetic)) for row in study.counted().values()]
    counts = Counter(("none", "") if proof is None else (proof.code[:8], proof.arithmetic[:8]) for proof in of_rows)
    rows = [[str(num), *proved] for proved, num in sorted(counts.items())]
    return f"\n{markdown_table(('rows', 'proved last by the code', 'rounding'), rows)}" if rows else ""


def _row(study: ClaimStudy, name: str, claim: Claim, decision: Decision) -> Iterator[str]:
    unit = " rounds" if claim.figure.startswith("rounds_to_") else ""
    yield claim.says
    yield f"{claim.paper} {claim.table}"
    yield f"{claim.printed:+.2f}{unit}" if not unit else f"{claim.printed:+.0f}{unit}"
    yield "as printed" if claim.instead is None else claim.instead.on
    gain = decision.gain
    yield "" if gain is None else f"{gain.mean:+.2f}{unit} ({gain.low:+.2f} to {gain.high:+.2f})"
    yield f"{decision.seeds}" + (f", from seed {claim.first_seed}" if claim.first_seed else "")
    yield _p(decision)
    why = decision.why or study.blocked(name, decision)
    yield f"**{decision.word}**" + (f": {why}" if why else "")
    yield _cost(study, name, decision)


def _p(decision: Decision) -> str:
    """Return the p-value that decided, as text; unless the text says more, the hypothesis is that methods are equal."""
    if decision.why == TOO_SMALL:
        return f"{decision.p_less:.2g} (half or more)"
    return "" if decision.p == 1 else f"{decision.p:.2g}"


def _cost(study: ClaimStudy, name: str, decision: Decision) -> str:
    """Return, as text, the CPU time of a claim's runs and, for an undecided claim, the time for its next test."""
    spent = f"{study.cost_s(name) / 60:.0f} min"
    seeds = study.next_seeds({name: decision}).get(name)
    if seeds is None or study.blocked(name, decision):
        return spent
    each = [study.estimate_s(wanted) for wanted in study.cells[name].values()]
    known = [cost for cost in each if cost is not None]
    more = (len(seeds) - decision.seeds) * sum(known) / 60
    if len(known) < len(each):
        return f"{spent}; cost not known yet"
    return f"{spent}; {more:.0f} min more for {len(seeds)} seeds"


def filled(text: str, study: ClaimStudy) -> str:
    """Return the `text` of a page with the table of claims between the two lines that mark its place.

    Raises InputError if these lines are missing.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(f"the page has no place for the table: it needs a line {BEGIN} and a line {END}")
    return f"{before}{begin}\n{table(study)}{end}{after}"


def write_or_check(page: Path, study: ClaimStudy, *, check: bool) -> bool:
    """Write the table into `page`, unless `check` is set; return whether the page is up to date now.

    Raises InputError if the page can't be read or written, or has no place for the table.
    """
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise InputError(f"the page {page} can't be read: {error}") from error
    new = filled(text, study)
    if not check and new != text:
        with writing(page):
            page.write_text(new, encoding="utf-8")
    return not check or new == text
