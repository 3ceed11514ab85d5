"""Which version of a package is installed; netdfl's own code may run without being installed, as in its image."""

from __future__ import annotations

from importlib import metadata


def version_of(package: str) -> str | None:
    """The installed version of `package`; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
