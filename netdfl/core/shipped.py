"""Files that come with netdfl: inside the package where it is installed, beside it in a checkout."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def shipped(folder: str) -> Path:
    """Where the repository's `folder` lies, `scenarios` or `nodes/image`: a wheel has it below `netdfl/shipped`."""
    inside = PACKAGE / "shipped" / folder
    return inside if inside.is_dir() else PACKAGE.parent / folder
