r"""Text of tables in LaTeX: special characters, labels, headings, and the approximate width of a table."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

PAGE = 345
"""The width of the text on a page of the class `article`, in points."""
NARROW = "  \\setlength{\\tabcolsep}{4pt}\n"
"""The line that narrows the gaps between the columns of a table that is wider than `PAGE`."""
_WIDTH, _SMALL, _GAP = 5.0, 4.3, 12.0
"""The mean widths of a letter and of one in small print, and the gap between columns, in points."""
_LINE = 12
"""The least number of letters of a line in a heading of several lines."""
_BREAK = "\\\\"
_SPECIAL = {**{char: f"\\{char}" for char in "&%$#_{}"}, "\\": r"\textbackslash{}", "~": r"\textasciitilde{}"}
_SPECIAL |= {
    "±": r"$\pm$",
    "†": r"$^\dagger$",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


def tex(text: str) -> str:
    """Return `text` with the special characters of LaTeX escaped."""
    return "".join(_SPECIAL.get(char, char) for char in text)


def label_of(title: str) -> str:
    """Return `title` as a label for LaTeX, of letters, digits and hyphens."""
    return re.sub(r"[^A-Za-z0-9]+", "-", title).strip("-")


def broken(heading: str, side: str) -> str:
    """Return a heading in LaTeX, in several lines if it is long; `side` is the alignment of its column."""
    lines = textwrap.wrap(heading, max(_LINE, *map(len, heading.split())))
    return tex(heading) if len(lines) < 2 else f"\\shortstack[{side}]{{{_BREAK.join(map(tex, lines))}}}"


def width_of(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> float:
    """Return the approximate width of a table in points: the widest cell of each column, and the gaps.

    The cells in `rows` are text; a part in parentheses is printed below the rest, in small print.
    """
    widths = [_WIDTH * len(each) for each in headings]
    for row in rows:
        cells = [each.partition(" (") for each in row]
        sizes = [max(_WIDTH * len(above), _SMALL * len(below)) for above, _, below in cells]
        widths = list(map(max, widths, sizes))
    return sum(widths) + _GAP * len(widths)
