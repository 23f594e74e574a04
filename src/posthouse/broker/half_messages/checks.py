"""Asks producers for what they have not decided in time.

A check asks any live producer of the group. As long as there is none, checks are put off and do not count.
Nor do they while they wait for a producer that is busy with others.
"""

import logging
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, TypeAlias

from posthouse.broker.half_messages.half_message import HalfMessage
from posthouse.broker.half_messages.parking import PARKED_TOPIC
from posthouse.broker.half_messages.undecided import Undecided
from posthouse.model.clock import Clock
from posthouse.model.errors import PosthouseError

log = logging.getLogger(__name__)

FIRST_CHECK_SECONDS: Final = 6
LONGEST_FIRST_CHECK: Final = 3 * 24 * 3600
CHECK_SECONDS: Final = 30
MOST_CHECKS: Final = 15
LONGEST_SECONDS: Final = 72 * 3600
"""After so long without a producer to ask, a message is parked, too. Counted since the broker has started."""
_AT_ONCE: Final = 1000

Ask: TypeAlias = Callable[[int, HalfMessage], bool]
"""Asks a producer of the message's group what was decided of the message with this id. False if no producer
is connected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asker:
    ask: Ask
    is_taken: bool


class Checks:
    def __init__(
        self,
        clock: Clock,
        undecided: Mapping[int, Undecided],
        deciding: Container[int],
        messages: Callable[[Sequence[int]], Awaitable[dict[int, HalfMessage]]],
        park: Callable[[int], None],
    ) -> None:
        """`undecided` and `deciding` change under its eyes."""
        self._clock = clock
        self._undecided = undecided
        self._deciding = deciding
        self._messages = messages
        self._park = park
        self._due: list[tuple[float, int, str]] = []
        """A heap of monotonic times, ids and groups. Only the entry counts whose time the message has."""
        self._unasked: dict[str, set[int]] = {}
        """Messages that were due when no producer of their group was connected."""
        self._askers: list[_Asker] = []

    def ask_by(self, ask: Ask, *, is_taken: bool = False) -> None:
        """Producers of one protocol. If checks are taken by them, they count when `was_taken` is called, and
        otherwise when `ask` has returned True."""
        self._askers.append(_Asker(ask=ask, is_taken=is_taken))

    def was_taken(self, id: int) -> None:
        """A producer has the check now, and time to answer until the next one."""
        known = self._undecided.get(id)
        if known is not None:
            known.checks += 1
            self._no_longer_unasked(id, known.group)
            self._put(id, known, self._clock.monotonic() + CHECK_SECONDS)

    def plan(self, id: int, message: HalfMessage) -> None:
        old = (self._clock.now_ms() - message.prepared_ms) / 1000
        left = min(max(message.first_check_s - old, 0), message.first_check_s)
        self._put(id, self._undecided[id], self._clock.monotonic() + left)

    def producer_came(self, group: str) -> None:
        """The group had no producer: what was due meanwhile is due now."""
        now = self._clock.monotonic()
        for id in self._unasked.pop(group, ()):
            if (known := self._undecided.get(id)) is not None:
                self._put(id, known, now)

    def _put(self, id: int, known: Undecided, at: float) -> None:
        known.check_at = at
        heappush(self._due, (at, id, known.group))

    async def check(self) -> None:
        now = self._clock.monotonic()
        due: dict[int, Undecided] = {}
        while self._due and self._due[0][0] <= now and len(due) < _AT_ONCE:
            at, id, group = heappop(self._due)
            known = self._undecided.get(id)
            if known is None:
                self._no_longer_unasked(id, group)
            elif known.check_at != at:
                continue  # it was due earlier
            elif id in self._deciding:  # that may fail
                self._put(id, known, now + CHECK_SECONDS)
            else:
                due[id] = known
        try:
            messages = await self._messages(list(due))
        except PosthouseError:
            for id, known in due.items():
                self._put(id, known, now + CHECK_SECONDS)
            raise
        for id, known in due.items():
            if id not in self._undecided:
                self._no_longer_unasked(id, known.group)
                continue  # decided meanwhile
            if id not in messages:
                log.error("half message %d of group %s is damaged: nobody can be asked", id, known.group)
                continue
            self._put(id, known, now + CHECK_SECONDS)
            if id in self._deciding:
                continue
            if not self._is_asked(id, known, messages[id], now):
                log.warning(
                    "half message %d of group %s is undecided for %d s: it is parked in topic %s",
                    id,
                    known.group,
                    now - known.since,
                    PARKED_TOPIC,
                )
                self._park(id)

    def _is_asked(self, id: int, known: Undecided, message: HalfMessage, now: float) -> bool:
        """False if nobody is to be asked any more."""
        if known.checks >= MOST_CHECKS:
            return False
        asker = next((each for each in self._askers if each.ask(id, message)), None)
        if asker is not None:
            known.checks += not asker.is_taken
            self._no_longer_unasked(id, known.group)
            return True
        self._unasked.setdefault(known.group, set()).add(id)
        return now - known.since < LONGEST_SECONDS

    def _no_longer_unasked(self, id: int, group: str) -> None:
        ids = self._unasked.get(group)
        if ids is not None:
            ids.discard(id)
            if not ids:
                del self._unasked[group]
