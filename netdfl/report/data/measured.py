"""The report's sections on results of `netdfl measure`: sharpness and landscape of the loss, generalization gap."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from netdfl.core.errors import InputError
from netdfl.core.files import read_plain, read_plain_bytes
from netdfl.record.run import Run
from netdfl.report.data.section import Picture, Section, Table
from netdfl.report.words import bounded, figure

MOST_BYTES = 8 << 20
PNG = b"\x89PNG\r\n\x1a\n"
PICTURES = {
    "landscape_lines": "The training loss along one random direction, from each model",
    "landscape_planes": "The training loss over a plane of two random directions around each model",
}
_SHARPNESS = ("model", "largest eigenvalues of the Hessian", "smallest found", "trace", "training loss")


def sharpness(run: Run) -> Section | None:
    """Return a section on the curvature of the training loss at the average model and some nodes' own models.

    None if it was not measured.
    """
    models = _models(run, "sharpness")
    try:
        rows = [_curved(name, each) for name, each in models.items()]
    except (KeyError, TypeError, ValueError):
        return None
    lede = "Of the training loss at the last models; the smaller the eigenvalues, the flatter the minimum."
    return Section("Sharpness", lede, [Table(_SHARPNESS, rows)]) if rows else None


def _curved(name: str, of: Mapping[str, Any]) -> Sequence[str]:
    found = zip(map(float, of["eigenvalues"]), map(float, of["errors"]), strict=True)
    largest = ", ".join(bounded(figure(value), value, error) for value, error in found)
    trace = f"{figure(float(of['trace']))} ± {float(of['trace_error']):.2g}"
    return [name, largest, figure(float(of["smallest"])), trace, figure(float(of["loss"]))]


def landscape(run: Run) -> Section | None:
    """Return a section with plots of the training loss around the average model and some nodes' own models.

    None if there are no plots.
    """
    found = [(title, _png(run.path / "measures" / f"{name}.png")) for name, title in PICTURES.items()]
    pictures = [Picture(title, data) for title, data in found if data]
    lede = "Directions are normalized by filter, so that models of different size can be compared; the model is at 0."
    return Section("Landscape of the loss", lede, pictures=pictures) if pictures else None


def gap(run: Run) -> Section | None:
    """Return a section on models' metrics on training and test data, and their differences; None if not measured."""
    models = _models(run, "gap")
    try:
        names = list(dict.fromkeys(name for each in models.values() for name in each))
        rows = [
            [model, *(_number(name, float(each[name])) if name in each else "" for name in names)]
            for model, each in models.items()
        ]
    except (TypeError, ValueError):
        return None
    head = ["model", *(name.replace("_", " ") for name in names)]
    lede = "Each model on all clients' training examples, without augmentation, and on the test set."
    return Section("Gap between training and test", lede, [Table(head, rows)]) if rows else None


def _number(name: str, value: float) -> str:
    """Return a metric's value as text: an accuracy in percent, a difference of two accuracies in percentage points."""
    if not name.endswith("accuracy"):
        return figure(value)
    return f"{100 * value:+.1f} points" if name.startswith("gap_") else f"{100 * value:.1f}%"


def _models(run: Run, what: str) -> Mapping[str, Any]:
    try:
        found = json.loads(read_plain(run.path / "measures" / f"{what}.json", MOST_BYTES))["models"]
    except (OSError, InputError, ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) and all(isinstance(each, dict) for each in found.values()) else {}


def _png(path: Path) -> str:
    """Return the PNG picture at `path` as a data URL; empty if there is none."""
    try:
        data = read_plain_bytes(path, MOST_BYTES)
    except (OSError, InputError):
        return ""
    return f"data:image/png;base64,{b64encode(data).decode()}" if data.startswith(PNG) else ""


MEASURED: tuple[Callable[[Run], Section | None], ...] = (sharpness, landscape, gap)
"""The functions that make the report's sections on measurements, in the order of the page."""
