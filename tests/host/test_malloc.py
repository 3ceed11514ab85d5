"""Freed memory stays inside a simulated run, and goes back to the system after it."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import numpy as np
from netdfl.core.process import freed_kept

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(8_000_000)  # 64 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

before = resident()
with freed_kept():
    np.ones(8_000_000)
    print(faults(), resident() - before)
print(faults(), resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone has mallopt")
def test_a_block_that_comes_again_costs_no_page_faults_inside_and_nothing_is_kept_after() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], text=True, capture_output=True, check=True)
    (inside, kept), (outside, left) = (map(int, line.split()) for line in done.stdout.splitlines())
    pages = 20 * 64_000_000 // 4096
    assert inside < 0.05 * pages
    assert kept > 60_000_000
    assert outside > 0.5 * pages / 512  # a huge page is one fault
    assert left < 16_000_000
