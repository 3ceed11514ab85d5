"""Arguments of the Python API: one that does not fit gets a sentence, with its name, what came and what is expected."""

from __future__ import annotations

import math
from numbers import Integral, Real

from netdfl.core.errors import InputError


def expect(fits: object, name: str, value: object, expected: str) -> None:
    """Nothing where `value` fits. Raises InputError where it does not."""
    if not fits:
        raise InputError(f"{name} is {repr(value)[:80]}: expected {expected}")


def is_whole(value: object, least: int) -> bool:
    """Whether it is a whole number, `least` or more."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def is_number(value: object) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
