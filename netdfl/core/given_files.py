"""The reading of files that other programs wrote: with a byte order mark, Windows line ends, or gzip compression."""

from __future__ import annotations

import codecs
import gzip
import zlib
from io import BytesIO
from pathlib import Path

UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""The byte order marks of UTF-16."""
MOST_BYTES = 1 << 32
"""The most bytes of an unpacked file."""
_GZIP = b"\x1f\x8b"


def ending_of(file: str | Path) -> str:
    """Return the ending of a file's name in lower case, without `.gz`: `.csv` for `pings.csv.gz`."""
    return Path(str(file).lower().removesuffix(".gz")).suffix


def given_bytes(file: str | Path, most: int = MOST_BYTES) -> bytes:
    """Return the contents of a file, unpacked if it is gzip.

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
    """Return the text of a file with normalized line ends, decoded by its byte order mark or as UTF-8.

    Raises:
        OSError: The file can't be read.
        ValueError: The file is no such text; the message names the file and the remedy.
    """
    found = given_bytes(file, most)
    encoding = "utf-16" if found.startswith(UTF16_MARKS) else "utf-8-sig"
    try:
        text = found.decode(encoding)
    except UnicodeDecodeError as exc:
        raise ValueError(f"{file} is not text in UTF-8 ({exc.reason} at byte {exc.start}); save it as UTF-8") from exc
    return text.replace("\r\n", "\n").replace("\r", "\n")
