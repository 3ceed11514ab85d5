"""Pickles of other programs, read only as plain data: no class or function that a pickle names is looked up or run."""

from __future__ import annotations

import pickle
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

from typing_extensions import override

from netdfl.core.errors import InputError
from netdfl.core.given_files import given_bytes


class _PlainUnpickler(pickle.Unpickler):
    """An unpickler of numbers, text, lists, tuples, sets and dictionaries; it refuses classes and functions."""

    @override
    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}, which would be run")


def plain_pickle(file: Path) -> Any:
    """Return the plain data of a pickle. Raises InputError for other contents, with the remedy."""
    try:
        return _PlainUnpickler(BytesIO(given_bytes(file))).load()
    except OSError as exc:
        raise InputError(f"can't read {file}: {exc.strerror}; give the path of a pickle") from exc
    except Exception as exc:  # a damaged pickle raises almost anything
        what = f"{type(exc).__name__}: {exc}"
        raise InputError(
            f"{file} is no pickle of plain data ({what}); write it anew from numbers, text and lists"
        ) from exc
