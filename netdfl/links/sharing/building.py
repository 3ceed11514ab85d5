"""The path of an edge some of whose links are shared: which stages a message meets, and in which order.

Uplink, the link's own rate and downlink are crossed at once, so they are one stage. Where the own rate follows a trace
or is a model of TCP, that stage stays between them, and they are crossed one after another.

    uplink shared:        [uplink + own rate + downlink, judged at its beginning] [latency ...]
    downlink alone:       [state, loss ...] [own rate + downlink] [latency ...]
    a trace between them: [uplink, judged] [trace] [latency ...] [downlink]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netdfl.core.types import Edge
from netdfl.links.path import Path
from netdfl.links.rules.base import LinkRule, Stage
from netdfl.links.rules.disorder import Corrupt, Duplicate
from netdfl.links.rules.loss import Loss
from netdfl.links.rules.mahimahi import TraceRate
from netdfl.links.rules.named import MessageNumbers, NamedLoss
from netdfl.links.rules.rate import Rate
from netdfl.links.rules.state import LinkState
from netdfl.links.rules.tcp import Tcp
from netdfl.links.sharing.capacity import SharedLink
from netdfl.links.sharing.network import FairNetwork
from netdfl.links.sharing.stage import FairStage, LostOnes
from netdfl.links.sharing.told import ToldDownlinks

NodeLink = LinkRule | SharedLink
_BEFORE = (MessageNumbers, NamedLoss, LinkState, Loss, Duplicate, Corrupt)


def fair_path(
    networks: tuple[FairNetwork, FairNetwork],
    edge: Edge,
    own: Sequence[Stage],
    uplink: NodeLink | None,
    downlink: NodeLink | None,
    last: Sequence[LinkRule],
    fuse: Callable[[Sequence[Stage]], tuple[LinkRule, ...]],
    told: ToldDownlinks | None,
) -> Path:
    """Return the path over `own` stages between an uplink and a downlink, one of which at least is shared.

    Of `networks`, one has the uplinks and one the downlinks. With `told`, each end emulates its own links, and the
    sender has what it is told of the downlink.
    """
    network, downlinks = networks
    before = [stage for stage in own if isinstance(stage, _BEFORE)]
    behind = [stage for stage in own if not isinstance(stage, _BEFORE)]
    rate = behind[0] if behind and isinstance(behind[0], Rate) else None
    behind = behind if rate is None else behind[1:]
    own_rate = None if rate is None else SharedLink((2, *edge), rate.shape, rate.scale)
    rounds = None if rate is None else rate.rounds
    links = [link for link in (uplink, own_rate) if isinstance(link, SharedLink)]
    last_link: LinkRule | None = None
    if not isinstance(downlink, SharedLink):
        last_link = downlink
    elif behind and isinstance(behind[0], TraceRate | Tcp):
        last_link = FairStage(downlinks, edge, [downlink])
    else:
        links.append(downlink if told is None else told.add(edge, downlink))
    if isinstance(uplink, SharedLink):
        stage = FairStage(network, edge, links, own_rate, rounds, before)
        lost = [LostOnes(stage.fates)] if before or links[1:] else []
        return Path(edge, [stage, *lost, *fuse(behind)], None, last_link, last)
    shared = [FairStage(network, edge, links, own_rate, rounds)] if links else []
    return Path(edge, [*fuse(before), *shared, *fuse(behind)], uplink, last_link, last)
