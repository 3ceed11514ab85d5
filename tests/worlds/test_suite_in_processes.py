"""The suite of worlds in processes."""

from __future__ import annotations

from tests.suite_of_worlds import suite_of

bench, test_conformance = suite_of("processes")
