"""Messages per second of queues and virtual hosts.

Counters are sampled every few seconds while clients ask for rates, and for two minutes longer. A rate is the
difference of the last two samples.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import NamedTuple

from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.namespaces import Namespaces
from posthouse.protocols.admin.turns import Turns, in_turns

_SECONDS = 5.0
_KEPT_SECONDS = 120.0
"""Sampling ends after this time without a request; scalers ask twice a minute."""
_AT_ONCE = 500
"""Counts that are summed between two looks at the clock."""


class Counts(NamedTuple):
    publish: float = 0
    deliver: float = 0
    get: float = 0
    ack: float = 0
    redeliver: float = 0
    ready: float = 0
    unacked: float = 0

    def plus(self, other: "Counts") -> "Counts":
        return Counts(*map(add, self, other))

    def per_second(self, before: "Counts", seconds: float) -> "Counts":
        changes = [(now - then) / seconds for now, then in zip(self, before, strict=True)]
        # Counters go back only where queues were deleted. Lengths may fall.
        return Counts(*(max(each, 0.0) for each in changes[:5]), *changes[5:])


def counts_of(queue: LogQueue) -> Counts:
    counters = queue.counters
    return Counts(
        counters.published,
        counters.delivered,
        counters.got,
        counters.acked,
        counters.redelivered,
        *queue.lengths,
    )


async def total_of(queues: Sequence[LogQueue]) -> Counts:
    """All these queues together."""
    return await _sum([counts async for counts in in_turns(map(counts_of, queues))])


async def _sum(all_counts: Sequence[Counts]) -> Counts:
    total, turns = _NONE, Turns()
    for first in range(0, len(all_counts), _AT_ONCE):
        total = total.plus(Counts(*map(sum, zip(*all_counts[first : first + _AT_ONCE], strict=True))))
        await turns.next()
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    at: float
    queues: Mapping[LogQueue, Counts] = field(default_factory=dict)
    namespaces: Mapping[str, Counts] = field(default_factory=dict)


_NONE = Counts()


class Rates:
    """Owned by the event loop."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self._last: _Sample | None = None
        self._before: _Sample | None = None
        self._asked_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._sampling: asyncio.Task[None] | None = None

    def of_queue(self, queue: LogQueue) -> Counts:
        self._ask()
        last, before = self._last, self._before
        if last is None or before is None:
            return _NONE
        counts = last.queues.get(queue)
        if counts is None:
            return _NONE
        return counts.per_second(before.queues.get(queue, _NONE), last.at - before.at)

    def of_namespace(self, name: str) -> Counts:
        self._ask()
        last, before = self._last, self._before
        if last is None or before is None:
            return _NONE
        counts = last.namespaces.get(name, _NONE)
        return counts.per_second(before.namespaces.get(name, _NONE), last.at - before.at)

    def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        self._asked_at = loop.time()
        if self._timer is None and self._sampling is None:
            self._start()

    def _start(self) -> None:
        self._timer = None
        self._sampling = asyncio.get_running_loop().create_task(self._sample())
        self._sampling.add_done_callback(self._sampled)

    def _sampled(self, task: "asyncio.Task[None]") -> None:
        self._sampling = None
        loop = asyncio.get_running_loop()
        if loop.time() - self._asked_at < _KEPT_SECONDS:
            self._timer = loop.call_later(_SECONDS, self._start)
        else:
            self._last = self._before = None

    async def _sample(self) -> None:
        at = asyncio.get_running_loop().time()
        queues: dict[LogQueue, Counts] = {}
        namespaces: dict[str, Counts] = {}
        for namespace in list(self._namespaces):
            found: list[Counts] = []
            async for queue in in_turns(list(namespace.queues.values())):
                queues[queue] = counts = counts_of(queue)
                found.append(counts)
            namespaces[namespace.name] = await _sum(found)
        self._before, self._last = self._last, _Sample(at=at, queues=queues, namespaces=namespaces)
