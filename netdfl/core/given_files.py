"""Files that a user brings, as other programs leave them: with a byte order mark, lines of Windows, packed by gzip."""

from __future__ import annotations

import codecs
import gzip
import zlib
from io import BytesIO
from pathlib import Path

UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""How a text in UTF-16 begins."""
MOST_BYTES = 1 << 32
"""What a packed file may come to."""
_GZIP = b"\x1f\x8b"


def ending_of(file: str | Path) -> str:
    """The ending of the file's name in lower case, as it was before gzip packed it: `.csv` of `pings.csv.gz`."""
    return Path(str(file).lower().removesuffix(".gz")).suffix


def given_bytes(file: str | Path, most: int = MOST_BYTES) -> bytes:
    """What is in the file, unpacked where gzip packed it.

    Raises:
        OSError: The file can't be read.
        ValueError: The packed file is damaged, or has more than `most` bytes when it is unpacked.
    """
    found = Path(file).read_bytes()
    if not found.startswith(_GZIP):
        return found
    try:
        with gzip.GzipFile(fileobj=BytesIO(found)) as packed:
            unpacked = packed.read(most + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as exc:
        raise ValueError(f"{file} is packed by gzip, and damaged: {exc}; pack it again") from exc
    if len(unpacked) > most:
        raise ValueError(f"{file} is packed by gzip, and has more than {most / 1e6:.0f} MB when it is unpacked")
    return unpacked


def given_text(file: str | Path, most: int = MOST_BYTES) -> str:
    """The text of the file, each line ended by a newline alone: UTF-8, or what its byte order mark says.

    Raises:
        OSError: The file can't be read.
        ValueError: It is no such text; names the file, and says what to do.
    """
    found = given_bytes(file, most)
    encoding = "utf-16" if found.startswith(UTF16_MARKS) else "utf-8-sig"
    try:
        text = found.decode(encoding)
    except UnicodeDecodeError as exc:
        raise ValueError(f"{file} is not text in UTF-8 ({exc.reason} at byte {exc.start}); save it as UTF-8") from exc
    return text.replace("\r\n", "\n").replace("\r", "\n")
