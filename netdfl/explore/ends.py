"""The settings that prevent a found stall, each tried in one run of each variant (set of reasons) of that stall."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from netdfl.core.errors import InputError
from netdfl.diagnosis.finding import DEADLINE
from netdfl.diagnosis.remedies import ALL, ANSWERED, ANY, FEWER_STEPS, HALVES, HEARTBEATS, RESEND, SKIP
from netdfl.explore.cause import cause_of, is_stall
from netdfl.explore.execute import Executor
from netdfl.explore.explore import Discovery
from netdfl.explore.shrink import beside
from netdfl.explore.trial import Trial, variant
from netdfl.scenario.loading.resolved import to_plain
from netdfl.scenario.model.schema import Scenario
from netdfl.supervisor.stalls import settings_of

SETTINGS = (DEADLINE, RESEND, ANSWERED, HEARTBEATS, HALVES, FEWER_STEPS, ALL, ANY, SKIP)
MOST_TRIED = 4
"""The most runs with one stall in which each setting that might prevent the stall is tried."""


class EndingSettings(NamedTuple):
    """The settings with which a found stall does not occur in any of the tried runs.

    Attributes:
        settings: the settings, as a user would write them.
        trials: the numbers of the trials in which they were tried.
    """

    settings: tuple[str, ...] = ()
    trials: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Return one sentence about which settings prevent the stall."""
        if not self.settings:
            return "No setting that could be tried ends it."
        runs = f"all {len(self.trials)} runs" if len(self.trials) > 1 else "the run"
        each = f"Each of {', '.join(f'`{each}`' for each in self.settings)}"
        return f"{each if len(self.settings) > 1 else f'`{self.settings[0]}`'} ends {runs} in which it was tried."


def tried_in(found: Discovery) -> Sequence[Trial]:
    """Return the trials in which settings are tried: the finding's example, then one for each variant of its stall.

    The most frequent variants come first.
    """
    shown = [found.trial, *(found.examples[each] for each, _ in found.variants.most_common())]
    return list({trial.number: trial for trial in shown}.values())[:MOST_TRIED]


def find_ends(found: Discovery, scenario: Scenario, executor: Executor) -> EndingSettings:
    """Return the settings, among those possible in `scenario`, with which none of the finding's tried trials stalls."""
    trials, allows = tried_in(found), settings_of(scenario)
    shown = [variant(scenario, trial.events, trial.luck) for trial in trials]
    ends = [each for each in SETTINGS if allows(each) and all(_goes_on(one, each, executor) for one in shown)]
    return EndingSettings(tuple(ends), tuple(trial.number for trial in trials))


def _goes_on(scenario: Scenario, setting: str, executor: Executor) -> bool:
    """Return whether a run with `setting` ends without a stall."""
    try:
        run = executor.run(beside(scenario, to_plain(scenario), [setting.replace(": ", "=", 1)]))
    except InputError:
        return False
    cause = cause_of(run)
    return not run.broke and (cause is None or not is_stall(cause.key))
