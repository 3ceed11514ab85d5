"""The file names of a study's plots, and the removal of plots that the study no longer draws."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from netdfl.scenario.model.study import FigureSpec
from netdfl.study.labels import end_of

ENDINGS = (".png", ".pdf")


def stems_of(figures: Sequence[FigureSpec]) -> list[str]:
    """Return a distinct file name, without ending, for each plot: `error`, and `error_by_lr` for another of `error`."""
    found: list[str] = []
    for drawn in figures:
        stem = _stem(drawn)
        if stem in found:
            stem = "_".join([drawn.y, "by", *(_word(each) for each in (drawn.x, drawn.panels) if each)])
        found.append(stem if stem not in found else f"{stem}_{len(found)}")
    return found


def _stem(drawn: FigureSpec) -> str:
    if drawn.x in ("round", "bytes_sent") or "@" in drawn.x:
        return f"{drawn.y}_by_{drawn.x.partition('@')[0]}"
    return drawn.y


def _word(path: str) -> str:
    return re.sub(r"\W+", "-", end_of(path))


def names_of(figures: Sequence[FigureSpec], learning: Sequence[str]) -> set[str]:
    """Return the names of all plots of a study: `figures`, and the metrics `learning` over rounds, time and bytes."""
    return {*stems_of(figures), *(f"{metric}_learning" for metric in learning)}


def remove(folder: Path, names: Iterable[str]) -> list[str]:
    """Remove the plots with these names from `folder`; return the names of those that were there."""
    found = []
    for name in sorted(names):
        files = [file for ending in ENDINGS if (file := folder / f"{name}{ending}").is_file()]
        for file in files:
            file.unlink()
        found += [name] * bool(files)
    return found
