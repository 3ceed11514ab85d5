"""The present rules of core links: the values that the underlay states, overridden by scheduled changes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from netdfl.links.rules.rate import Shape
from netdfl.links.schedule.active_changes import EffectiveValue, Overlays, effective
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.spec import choose
from netdfl.underlay.sites import CoreLink, CoreNetwork


class CoreValues:
    """The present rules of every core link. `numbers` has each link's index."""

    def __init__(self, network: CoreNetwork) -> None:
        """Start with the values that the underlay states, before any event."""
        self._network = network
        self.numbers = {link: number for number, link in enumerate(network.links.values())}
        self._values = {link: _base(link) for link in self.numbers}
        self._overlays = Overlays()

    def __getitem__(self, link: CoreLink) -> Mapping[str, EffectiveValue]:
        """Return the rules of `link` by name."""
        return self._values[link]

    def apply(self, event: CompiledEvent) -> Iterator[tuple[CoreLink, Collection[str]]]:
        """Apply a change of core links; yield each of these links with the names of its rules that changed."""
        links = self._network.named(event.core)
        numbers = tuple(self.numbers[link] for link in links)
        self._overlays.apply(replace(event, core="", blocks=(), nodes=numbers))
        for link in links:
            before = self._values[link]
            values = effective(_base(link), self._overlays.on_node(self.numbers[link]))
            self._values[link] = values
            yield link, [key for key, value in values.items() if value != before[key]]

    def rate(self, link: CoreLink) -> tuple[Shape, float]:
        """Return the parameters of the rate of `link`, and the factor by which events scale it."""
        value = self._values[link]["rate"]
        return (Shape(None) if value.value is None else value.value.build()), value.scale

    def delay_ns(self, link: CoreLink) -> int:
        """Return the delay of `link` in ns."""
        value = self._values[link]["latency"]
        delay: Any = None if value.value is None else value.value.build()
        return 0 if delay is None else int(delay.constant_ns * value.scale)


def _base(link: CoreLink) -> dict[str, EffectiveValue]:
    """Return the rules of a core link before any event."""
    figures = link.figures
    queue = {} if figures.queue_bytes is None else {"queue": figures.queue_bytes}
    rate = None if figures.rate_bps is None else {"rate": figures.rate_bps, **queue}
    written = {"rate": rate, "loss": figures.loss or None, "latency": figures.latency_ns}
    values = {key: EffectiveValue(choose(key, value)) for key, value in written.items()}
    return {"state": EffectiveValue("up"), **values}
