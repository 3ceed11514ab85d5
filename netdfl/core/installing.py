"""The pip or uv command that adds a package to the running Python, for error messages."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec


def pip_install(*packages: str) -> str:
    """Return the shell command that installs `packages` here, like `/lab/.venv/bin/python -m pip install pandas`.

    A plain `pip install` may belong to another Python. An environment that uv made has no pip, so uv is named there.
    """
    python = shlex.quote(sys.executable or "python3")
    wanted = " ".join(map(shlex.quote, packages))
    if find_spec("pip") is None:
        return f"uv pip install --python {python} {wanted}"
    return f"{python} -m pip install {wanted}"
