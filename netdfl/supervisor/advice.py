"""What the diagnosis of a run may advise: settings that its scenario could be given."""

from __future__ import annotations

import json
from functools import cache

from netdfl.core.errors import ScenarioError
from netdfl.diagnosis.remedies import RESEND, SKIP, Allows
from netdfl.scenario.load import loads
from netdfl.scenario.loading.resolved import to_plain
from netdfl.scenario.model.schema import Scenario


def nothing(setting: str) -> bool:
    """No setting is advised: nobody reads it."""
    return False


def settings_of(scenario: Scenario, *, launched: bool = True) -> Allows:
    """Which settings `scenario` could be given that it does not have; each is tried once, when it is asked for.

    Only a supervisor (`launched`) knows what was lost, and acts on any stall.
    """
    plain = to_plain(scenario)
    text, folder = json.dumps(plain), "." if scenario.file is None else scenario.file.parent

    @cache
    def allows(setting: str) -> bool:
        if setting in (RESEND, SKIP) and not launched:
            return False
        key, value = setting.split(": ", 1)
        try:
            changed = to_plain(loads(text, [f"{key}={value}"], directory=folder))
        except ScenarioError:
            return False
        return changed != plain

    return allows
