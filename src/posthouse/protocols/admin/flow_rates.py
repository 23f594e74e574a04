"""How fast messages come to a subscription and leave it, and when its backlog is gone.

Nothing is counted for that on the way of a message. Every request for a queue or group leaves a sample of
what the broker knows anyway. Rates are those since a sample of a few seconds ago, so the first request in two
minutes has none.
"""

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

_LEAST_SECONDS: Final = 1.0
"""Rates of a shorter time would jump."""
_WINDOW_SECONDS: Final = 5.0
_KEPT_SECONDS: Final = 120.0
_MOST_KEPT: Final = 1000


class FlowView(msgspec.Struct, frozen=True, kw_only=True):
    in_rate: Annotated[
        float | None,
        Meta(
            description="Messages per second that came. Null if nobody has asked in the last two minutes: "
            "ask again after a second."
        ),
    ]
    out_rate: Annotated[
        float | None,
        Meta(description="Messages per second that left: settled, dead-lettered, expired or dropped."),
    ]
    backlog: Annotated[int, Meta(description="Messages that are not settled, handed out or not.")]
    drain_seconds: Annotated[
        float | None,
        Meta(
            description="When the backlog is gone if both rates stay as they are; null if they are not "
            "known, or if no more leave than come."
        ),
    ]


class _Sample(NamedTuple):
    at: float
    entered: int
    backlog: int


@dataclass(frozen=True, slots=True)
class _Samples:
    shape: int
    taken: deque[_Sample]


class FlowRates:
    """Owned by the event loop."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._kept: dict[Hashable, _Samples] = {}

    def of(self, subscription: Hashable, *, entered: int, backlog: int, shape: int = 0) -> FlowView:
        """`entered` counts all messages that ever came, from any beginning. Where `shape` has changed, such
        as the number of partitions, totals of before do not count."""
        now = _Sample(self._monotonic(), entered, backlog)
        samples = self._kept.pop(subscription, None)
        if samples is None or samples.shape != shape or now.at - samples.taken[-1].at > _KEPT_SECONDS:
            samples = _Samples(shape, deque())
        self._kept[subscription] = samples  # behind the others
        taken = samples.taken
        while len(taken) > 1 and taken[1].at <= now.at - _WINDOW_SECONDS:
            taken.popleft()
        flow = _flow(taken[0], now) if taken else _flow(now, now)
        if not taken or now.at - taken[-1].at >= _LEAST_SECONDS:
            taken.append(now)
        while len(self._kept) > _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return flow


def _flow(before: _Sample, now: _Sample) -> FlowView:
    seconds = now.at - before.at
    if seconds < _LEAST_SECONDS:
        return FlowView(in_rate=None, out_rate=None, backlog=now.backlog, drain_seconds=None)
    entered = max(now.entered - before.entered, 0)
    left = max(entered - (now.backlog - before.backlog), 0)
    in_rate, out_rate = entered / seconds, left / seconds
    drain: float | None = None
    if not now.backlog:
        drain = 0.0
    elif out_rate > in_rate:
        drain = now.backlog / (out_rate - in_rate)
    return FlowView(in_rate=in_rate, out_rate=out_rate, backlog=now.backlog, drain_seconds=drain)
