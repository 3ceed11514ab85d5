"""The checks of transports, without the one that waits for a second in CI: a few ways of sending have that one, too."""

from __future__ import annotations

import pytest

from netdfl.testing.transports import TRANSPORT_CHECKS, full_mailbox_slows_the_sender

FULL_MAILBOX_RARELY = [
    pytest.param(check, marks=[pytest.mark.soak] if check is full_mailbox_slows_the_sender else [])
    for check in TRANSPORT_CHECKS
]
"""All checks; of a full mailbox for the soak alone."""
