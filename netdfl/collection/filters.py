"""Filters of runs, in the form in which people type them: `lr > 0.1 seed = 2 pass`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from netdfl.collection.keys import differing, short_keys
from netdfl.collection.rows import COLUMNS, OTHER_NAMES, RunRow, metric_names
from netdfl.core.errors import InputError
from netdfl.core.units import parse_rate_bps, parse_size_bytes, parse_time_ns
from netdfl.scenario.model.choices import nearest

_TERM = re.compile(
    r"""\s*(?:and\s+)?(?:
    (?P<key>[^\s<>=!~,"']+)\s*(?P<sign><=|>=|!=|==|=|<|>|~)\s*(?P<value>"[^"]*"|'[^']*'|[^\s,<>=!~][^\s,]*)
    |(?P<word>"[^"]*"|'[^']*'|[^\s,<>=!~]+)
    )\s*(?:,\s*)?""",
    re.VERBOSE,
)
VERDICTS = ("pass", "done", "fail", "unknown")
"""Words of a filter that are not searched in the reasons of a verdict.

So the word `pass` does not select a run that failed because "nothing passes between nodes 0 and 3".
"""
_ORDERS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Number(NamedTuple):
    """A number in base units, with its unit: `s`, `bps` (bit/s), `B` (bytes), or empty for a plain number."""

    value: float
    unit: str = ""


@lru_cache(maxsize=4096)
def as_number(text: str) -> Number | None:
    """Return the number that a text like `0.1`, `5%`, `20ms`, `10Mbit` or `256KiB` stands for; None for other text."""
    with suppress(ValueError):
        plain = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        return Number(plain) if math.isfinite(plain) else None
    for unit, parse, base in (("s", parse_time_ns, 1e9), ("bps", parse_rate_bps, 1), ("B", parse_size_bytes, 1)):
        with suppress(ValueError):
            return Number(parse(text) / base, unit)
    return None


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a filter, such as `lr > 0.1`. A run without the key does not meet the condition."""

    key: str
    sign: str
    value: str

    def holds(self, row: RunRow, column: str) -> bool:
        """Return whether the run of `row` meets the condition; `column` is the full name of the condition's key."""
        if column == "tags":
            return self._of_texts(row.tags)
        found = row.value(column)
        if found is None:
            return False
        mine, asked = as_number(str(found)), as_number(self.value)
        if mine is not None and asked is not None and self.sign != "~" and _fit(mine, asked):
            return self._of_numbers(mine.value, asked.value)
        if self.sign in _ORDERS:
            return column == "started" and _in_order(self.sign, str(found), self.value)
        return self._of_texts([str(found)])

    def _of_numbers(self, mine: float, asked: float) -> bool:
        if self.sign in _ORDERS:
            return _ORDERS[self.sign](mine, asked)
        return (mine == asked) == (self.sign != "!=")

    def _of_texts(self, found: Sequence[str]) -> bool:
        asked, texts = self.value.lower(), [each.lower() for each in found]
        if self.sign == "~":
            return any(asked in each for each in texts)
        return (asked in texts) == (self.sign != "!=")


def _fit(mine: Number, asked: Number) -> bool:
    return "" in (mine.unit, asked.unit) or mine.unit == asked.unit


def _in_order(sign: str, mine: str, asked: str) -> bool:
    """Return whether the date `mine` is before or after `asked`, as the comparison `sign` (such as `>=`) demands.

    `mine` is cut to the length of `asked`, so that `>= 2026-11-20` includes the whole day.
    """
    cut = mine[: len(asked)]
    return {"<": cut < asked, "<=": cut <= asked, ">": cut > asked, ">=": cut >= asked}[sign]


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions and words, all of which a run must meet."""

    conditions: Sequence[Condition] = ()
    words: Sequence[str] = ()

    @classmethod
    def parse(cls, text: str) -> Filter:
        """Return the filter that is written in `text`. Raises InputError if the text can't be read."""
        conditions, words, at = [], [], 0
        while text[at:].strip():
            term = _TERM.match(text, at)
            if term is None or term.end() == at:
                raise InputError(
                    f"the filter {text!r} can't be read from {text[at:].strip()!r} on; write conditions and words, "
                    "like lr > 0.1 seed = 2 pass, with < <= > >= = != or ~ (contains)"
                )
            if term["key"]:
                sign = "=" if term["sign"] == "==" else term["sign"]
                conditions.append(Condition(term["key"], sign, term["value"].strip("\"'")))
            else:
                words.append(term["word"].strip("\"'").lower())
            at = term.end()
        return cls(conditions, words)

    def chosen(self, rows: Sequence[RunRow]) -> list[RunRow]:
        """Return the rows that meet the filter. Raises InputError for a key that is ambiguous, or that no row has."""
        names = Names(rows)
        columns = [(each, names.whole(each.key)) for each in self.conditions] if rows else []
        return [row for row in rows if self._words_are_in(row) and all(c.holds(row, name) for c, name in columns)]

    def hint(self, rows: Sequence[RunRow]) -> str:
        """Return a question to the user: whether keys of scenarios were meant where the filter names columns.

        The text is empty if no key ends with the name of such a column, as `links.default.loss` ends with `loss`.
        """
        names = Names(rows)
        told = [(each.key, key) for each in self.conditions if (key := _meant(each, names, rows)) is not None]
        return " ".join(f"{name} is {_what(name)}; did you mean {key}?" for name, key in told)

    def _words_are_in(self, row: RunRow) -> bool:
        if not self.words:
            return True
        texts = {column: str(row.value(column) or "").lower() for column in COLUMNS}
        why = texts.pop("reasons")
        text = " ".join(texts.values())
        return all(word in text or (word not in VERDICTS and word in why) for word in self.words)


def _meant(condition: Condition, names: Names, rows: Sequence[RunRow]) -> str | None:
    """Return the key that a condition on a column may have meant: one by which a run meets it, else the likeliest."""
    keys = names.hidden_keys(condition.key)
    hits = (key for key in keys if any(condition.holds(row, key) for row in rows))
    return next(hits, keys[0] if keys and not names.is_key(condition.key) else None)


def _what(name: str) -> str:
    return {"loss": "the test loss", "error": "the last error"}.get(name, f"the column {OTHER_NAMES.get(name, name)}")


class Names:
    """The names by which a filter may call a column, a metric or a scenario's key.

    Short ones are understood: `lr` for `algorithm.lr`, `mae` for `test_mae`.
    """

    def __init__(self, rows: Sequence[RunRow]) -> None:
        """Collect the metrics and keys of `rows`, and those keys in which the rows differ."""
        self._metrics = metric_names(rows)
        self._keys = {key for row in rows for key in row.keys}
        self._short = short_keys(self._keys)
        self._differ = set(differing([row.keys for row in rows if row.keys]))

    def whole(self, name: str) -> str:
        """Return the column, the metric, or the full key, that `name` stands for.

        Of several keys that end with `name`, those with different values in the runs are preferred, then those with the
        fewest dots. If no key ends with it, `name` may be a task's metric without the prefix `test_`.

        Raises:
            InputError: No key ends with `name`, or several are equally good.
        """
        name = OTHER_NAMES.get(name, name)
        if name in COLUMNS or name in self._metrics or name in self._keys or name in self._short:
            return name
        ends = self._ending(name, self._keys) or self._ending(name, self._short)
        if not ends and f"test_{name}" in self._metrics:
            return f"test_{name}"
        if not ends:
            raise InputError(f"no run here has a key {name!r}; {self._remedy(name)}")
        as_good = [key for rank, key in ends if rank == ends[0][0]]
        if len(as_good) > 1:
            raise InputError(f"{name!r} may be {' or '.join(as_good[:4])}; write more of it")
        return as_good[0]

    def is_key(self, name: str) -> bool:
        """Return whether `name` is a full key, such as `algorithm.lr`, of some scenario."""
        return name in self._keys

    def hidden_keys(self, name: str) -> Sequence[str]:
        """Return the keys that end with `name` but that it does not stand for, as it names a column or metric, too.

        The likeliest key comes first. No keys are returned if `name` is neither a column nor a metric.
        """
        if OTHER_NAMES.get(name, name) not in (*COLUMNS, *self._metrics):
            return ()
        return [key for _, key in sorted({*self._ending(name, self._keys), *self._ending(name, self._short)})]

    def _remedy(self, name: str) -> str:
        keys = [*self._keys, *self._short]
        ends = [] if "." in name else [key.rpartition(".")[2] for key in keys]
        remedy = nearest(name, [*COLUMNS, *OTHER_NAMES, *self._metrics, *keys, *ends])
        if remedy.startswith("did you mean"):
            return remedy
        columns = ", ".join([*COLUMNS, *self._metrics])
        return f"columns are {columns}, and keys of scenarios are written like algorithm.lr, or as lr"

    def _ending(self, name: str, keys: Iterable[str]) -> list[tuple[tuple[bool, int], str]]:
        return sorted((self._rank(key), key) for key in keys if key.endswith(f".{name}"))

    def _rank(self, key: str) -> tuple[bool, int]:
        return (key not in self._differ, key.count("."))
