"""The suite of worlds in containers."""

from __future__ import annotations

from tests.suite_of_worlds import suite_of

bench, test_conformance = suite_of("containers")
