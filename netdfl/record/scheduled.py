"""Scheduled changes of links as rows of `events`: a partition has one row for its begin and one for its end.

Every way of running a fleet (simulated, or real processes) writes its compiled schedule as `events.jsonl` before the
run. This module joins it with the nodes' record: a change by the clock happened if some node was still active then; a
change by rounds happened when the first node had ended the round before. So the rows are the same in a simulated and a
real fleet, in a run that goes on, and in a killed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import TypeAdapter, ValidationError

from netdfl.core.files import read_plain
from netdfl.record.forms import LinkEventForm

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

ENDS = "_ends"
"""Suffix of an event's kind where a change ends: `partition_ends`."""
_EVENT: TypeAdapter[LinkEventForm] = TypeAdapter(LinkEventForm)


class ScheduledChange(NamedTuple):
    """A compiled event about links, as a row of the temporary table `script`.

    Attributes:
        at_ns: the time of the event in ns; None for an event by rounds.
        at_round: the round in which it begins; None for an event by time.
        until_round: the round before which it ends, if any.
        ends: whether it ends an earlier change.
        kind: the kind of event.
        entry: its index in the scenario's `events`.
        where: the links that it changes, as text.
        change: the new rules, as text.
    """

    at_ns: int | None
    at_round: int | None
    until_round: int | None
    ends: bool
    kind: str
    entry: int
    where: str
    change: str | None


def read_script(path: Path) -> list[ScheduledChange]:
    """Return the events about links in the file `events.jsonl` at `path`; skip its other lines."""
    if not path.is_file():
        return []
    found = []
    for line in read_plain(path).splitlines():
        try:
            event = _EVENT.validate_json(line)
        except ValidationError:
            continue  # an event on a node, which the node records; or a damaged line
        at = (event.get("at_ns"), event.get("at_round"), event.get("until_round"))
        ends, name = event["action"] == "unset", event.get("entry", "link")
        kind = name + ENDS if ends else name
        found.append(ScheduledChange(*at, ends, kind, event["source"], event.get("where", ""), event.get("change")))
    return found


def put_script(database: DuckDBPyConnection, script: Sequence[ScheduledChange]) -> None:
    """Create the table `script` in `database`, with a row for each scheduled change of links; `script` is not empty."""
    columns = "at_ns BIGINT, at_round INTEGER, until_round INTEGER, ends BOOLEAN, kind VARCHAR, entry INTEGER, "
    database.execute(f"CREATE OR REPLACE TEMP TABLE script ({columns} place VARCHAR, change VARCHAR)")
    parts = ", ".join("unnest(?)" for _ in ScheduledChange._fields)
    database.execute(f"INSERT INTO script SELECT {parts}", [list(column) for column in zip(*script, strict=True)])


def put_scheduled(database: DuckDBPyConnection, recorded: str) -> None:
    """Create the table `scheduled`: the link changes in the table `script` that the run lasted long enough to reach.

    The run's metrics and events decide that. `recorded` is an SQL query for the recorded events.
    """
    database.execute(f"CREATE OR REPLACE TEMP TABLE scheduled AS {_SCHEDULED.format(recorded=recorded)}")


_SCHEDULED = f"""
WITH ended AS (
    SELECT round, min(at_s) AS first_s, max(at_s) AS last_s FROM metrics
    WHERE name = 'round_s' AND node IS NOT NULL GROUP BY round
), over AS (
    SELECT max(at_s) AS at_s FROM (
        SELECT node, at_s FROM metrics UNION ALL SELECT node, at_s FROM ({{recorded}})
    ) WHERE node IS NOT NULL
), came AS (
    SELECT at_ns / 1e9 AS at_s, NULL AS round, kind, entry, place, change FROM script, over
    WHERE at_ns / 1e9 <= over.at_s
    UNION ALL
    SELECT if(at_round = 0, 0, (SELECT min(first_s) FROM ended WHERE ended.round >= at_round - 1)), at_round, kind,
    entry, place, change FROM script WHERE at_round IS NOT NULL
    UNION ALL
    SELECT last.last_s, until_round, kind || '{ENDS}', entry, place, NULL FROM script
    JOIN ended AS last ON last.round = until_round - 1
)
SELECT came.at_s, NULL::INTEGER AS node, coalesce(came.round, ended.round + 1, 0)::INTEGER AS round, came.kind,
    json_object('entry', came.entry, 'where', came.place, 'change', came.change) AS details
FROM came ASOF LEFT JOIN ended ON ended.first_s <= came.at_s WHERE came.at_s IS NOT NULL
"""
