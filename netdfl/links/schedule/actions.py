"""What a scheduled event can do: an action a function, which turns an entry into compiled events.

The key that names an action is also its first parameter: `{at: 20s, crash: 4, restart_after: 5s}`.
`link` and `node` take the changes as further keys, those of `spec.LINK_KEYS` and `spec.NODE_KEYS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from netdfl.links.schedule.compiling import Compiled
from netdfl.links.schedule.link_actions import flap, heal, link, node, partition, random
from netdfl.links.schedule.node_actions import churn, crash, pause, restart, resume, slow_down
from netdfl.links.schedule.plans import contact_plan, trace

ACTIONS: Mapping[str, Callable[..., Compiled]] = {
    "link": link,
    "node": node,
    "partition": partition,
    "heal": heal,
    "flap": flap,
    "random": random,
    "contact_plan": contact_plan,
    "trace": trace,
    "crash": crash,
    "restart": restart,
    "pause": pause,
    "resume": resume,
    "slow_down": slow_down,
    "churn": churn,
}
