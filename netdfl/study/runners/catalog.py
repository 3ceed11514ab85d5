"""The runners by name, and runners of the user's own."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping

from netdfl.core.errors import InputError
from netdfl.study.runners.base import Runner
from netdfl.study.runners.local import LocalRunner

RUNNERS: Mapping[str, Callable[[], Runner]] = {"local": LocalRunner}


def find_runner(name: str) -> Callable[[], Runner]:
    """Return what makes a runner: one of `RUNNERS`, or `module:callable` of one's own. Raises InputError."""
    if name in RUNNERS:
        return RUNNERS[name]
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise InputError(f"--runner {name}: expected {', '.join(RUNNERS)}, or module:callable of your own")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"--runner {name} can't be imported: {error}") from error
    missing = (
        [each for each in ("start", "ended", "stop") if not hasattr(found, each)] if isinstance(found, type) else []
    )
    if not callable(found) or missing:
        what = f"lacks {', '.join(missing)}" if missing else "is not callable"
        raise InputError(f"--runner {name} {what}: a runner has start, ended and stop (netdfl.study.runners.base)")
    return found  # type: ignore[no-any-return]
