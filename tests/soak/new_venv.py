"""A true new environment, as the README sets it up, runs the README's commands: `python -m tests.soak.new_venv`.

It clones the commit that is checked out, and so takes some minutes and the network for PyTorch. CI's sample is
`tests/docs/plain_installation.py`, which hides from netdfl what such an environment has not.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.soak.tally import ROOT, Count, append

sys.path.insert(0, str(ROOT / "tests" / "docs"))


def typed() -> list[str]:
    """The README's commands of netdfl that need no cluster, Docker or server, as a test of CI makes them smaller."""
    from documented_commands import shown_commands
    from test_documented_commands import INLINE, SMALLER, reasons

    shown = [each.command for each in shown_commands(ROOT / "README.md") if not reasons(each)]
    smaller = [
        " ".join([command, *(words for begin, words in SMALLER.items() if re.match(begin, command))])
        for command in (*shown, *INLINE)
    ]
    return [command for command in smaller if not command.startswith("netdfl serve")]


def main() -> None:
    """Make the environment, run the commands in it, and append the line; exit with 1 if one failed."""
    failures, commands = [], ["sh nodes/start.sh run scenarios/quickstart.yaml", *typed()]
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "netdfl"
        subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
        alone["PATH"] = f"{clone / '.venv/bin'}:{alone['PATH']}"
        for command in commands:
            done = subprocess.run(command, shell=True, cwd=clone, env=alone, capture_output=True, text=True)
            print(f"{done.returncode} {shlex.split(command)[:6]}", flush=True)
            if done.returncode:
                failures.append(f"{command}: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
        brings = subprocess.run(
            [clone / ".venv/bin/python", "-c", "import pytest"], env=alone, capture_output=True, text=True
        )
        failures += ["it has pytest, so it is not what a user gets"] * (brings.returncode == 0)
    append("the README's commands in a new .venv", Count(len(commands), failures), 0)
    print("\n".join(failures))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
