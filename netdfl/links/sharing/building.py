"""The path of an edge with shared links: which stages a message passes, and in which order.

Uplink, the link's own rate and downlink are crossed at once, so they are one stage. Where the own rate follows a trace,
that stage stays between them, and they are crossed one after another. A TCP stage follows and adds its excess delay.
"judged" means that state, loss and the like act when a message begins to cross the stage.

    uplink shared:        [uplink + own rate + downlink, judged at its beginning] [latency ...]
    downlink alone:       [state, loss ...] [own rate + downlink] [latency ...]
    a trace between them: [uplink, judged] [trace] [latency ...] [downlink]
"""

from __future__ import annotations

from collections.abc import Sequence

from netdfl.core.types import Edge
from netdfl.links.path import Fuse, Path
from netdfl.links.rules.base import LinkRule, Stage
from netdfl.links.rules.disorder import Corrupt, Duplicate
from netdfl.links.rules.loss import Loss
from netdfl.links.rules.mahimahi import TraceRate
from netdfl.links.rules.named import MessageNumbers, NamedLoss
from netdfl.links.rules.rate import Rate, Shape
from netdfl.links.rules.state import LinkState
from netdfl.links.rules.tcp import UNLIMITED_BPS, Tcp
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
    fuse: Fuse,
    told: ToldDownlinks | None,
    core: Sequence[SharedLink],
    *,
    over_tcp: bool,
) -> Path:
    """Return the path of `edge` between an uplink and a downlink, one of which at least shares its rate among flows.

    Args:
        networks: the network that has the uplinks, and the one that has the downlinks.
        edge: the sender and the receiver.
        own: the stages of the link itself.
        uplink: the sender's uplink.
        downlink: the receiver's downlink.
        last: stages that follow at the receiver.
        fuse: combines stages into as few as possible.
        told: if each node emulates its own links: the sender's models of the receivers' downlinks.
        core: shared core links, which a message crosses at the same time as uplink and downlink.
        over_tcp: whether the headers of packets count as bytes.
    """
    network, downlinks = networks
    before = [stage for stage in own if isinstance(stage, _BEFORE)]
    behind = [stage for stage in own if not isinstance(stage, _BEFORE)]
    rate = behind[0] if behind and isinstance(behind[0], Rate | Tcp) else None
    behind = behind[1:] if isinstance(rate, Rate) else behind
    own_rate = None if rate is None else SharedLink((2, *edge), *_rate_of(rate))
    rounds = rate.rounds if isinstance(rate, Rate) else None
    links = [link for link in (uplink, own_rate, *core) if isinstance(link, SharedLink)]
    last_link: LinkRule | None = None
    if not isinstance(downlink, SharedLink):
        last_link = downlink
    elif behind and isinstance(behind[0], TraceRate):
        last_link = FairStage(downlinks, edge, [downlink])
    else:
        links.append(downlink if told is None else told.add(edge, downlink))
    first_link = None if isinstance(uplink, SharedLink) else uplink
    if not links:
        return Path(edge, [*fuse(before), *fuse(behind)], first_link, last_link, last)
    judges = before if isinstance(uplink, SharedLink) else None
    stage = FairStage(network, edge, links, own_rate, rounds, judges, over_tcp=over_tcp)
    if judges is None:
        return Path(edge, [*fuse(before), stage, *fuse(behind)], first_link, last_link, last)
    lost = [LostOnes()] if before or links[1:] else []
    return Path(edge, [stage, *lost, *fuse(behind)], None, last_link, last)


def _rate_of(stage: Rate | Tcp) -> tuple[Shape, float]:
    """Return the rate parameters of a stage of the link itself, and the factor on its rate."""
    if isinstance(stage, Rate):
        return stage.shape, stage.scale
    return Shape(stage.rate if stage.rate < UNLIMITED_BPS else None), stage.scales["rate"]
