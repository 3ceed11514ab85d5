"""What a scheduled event can do: an action a function, which turns an entry into compiled events.

The key that names an action is also its first parameter: `{at: 20s, crash: 4, restart_after: 5s}`.
`link` and `node` take the changes as further keys, those of `spec.LINK_KEYS` and `spec.NODE_KEYS`.
"""

from __future__ import annotations

from netdfl.core.tables import by_name
from netdfl.links.schedule.link_actions import delay, drop, flap, heal, link, node, partition, random
from netdfl.links.schedule.node_actions import churn, crash, pause, restart, resume, slow_down
from netdfl.links.schedule.plans import contact_plan, trace

ACTIONS = by_name(
    *(link, node, partition, heal, flap, random, contact_plan, trace),
    *(drop, delay),
    *(crash, restart, pause, resume, slow_down, churn),
)
