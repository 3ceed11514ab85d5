"""A fleet of real nodes may open as many files as the machine lets its user."""

from __future__ import annotations

import subprocess
import sys

_ASK = """
import resource
from netdfl.core.process import allow_open_files
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
assert allow_open_files() == most
print(resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most))
"""


def test_a_low_limit_is_raised_to_what_the_user_may_have() -> None:
    done = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
