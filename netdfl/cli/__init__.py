"""The command line: a table of commands; what a command needs is imported inside it.

A new command is a function in a module of its own here, and a row of `netdfl.cli.commands.COMMANDS`.
"""

from __future__ import annotations

import gc
from functools import partial

from netdfl.cli.commands import make_app
from netdfl.cli.failures import guarded


def main() -> None:
    """Run the command line on the arguments of this process, and exit."""
    gc.set_threshold(50_000, 20, 20)  # what is imported stays: looking through it costs a tenth
    guarded(partial(make_app(), prog_name="netdfl"))
