"""Checks of half messages for producers that ask for them by HTTP: the broker cannot call an application.

A producer counts as connected while it waits for checks, and for a moment after that: it comes again when it
has answered. What it was not there to take, another one of its group takes.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from posthouse.broker.access.guard import Guard
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.half_messages.half_message import HalfMessage
from posthouse.broker.half_messages.half_messages import HalfMessages
from posthouse.model.errors import Unavailable

GRACE_SECONDS: Final = 10.0
MOST_GROUPS: Final = 10_000


@dataclass(slots=True)
class _Presence:
    guard: Guard
    until: float


@dataclass(slots=True)
class _Group:
    present: dict[str, _Presence] = field(default_factory=dict)
    """Its producers, by principal."""
    due: dict[int, Sequence[str]] = field(default_factory=dict)
    """Messages that a producer is to decide, with their topics."""
    waiting: set["asyncio.Future[None]"] = field(default_factory=set)

    def is_there(self, now: float) -> bool:
        return any(each.until > now for each in self.present.values())


class HalfChecks:
    """Owned by the event loop."""

    def __init__(self, half_messages: HalfMessages) -> None:
        self._half_messages = half_messages
        self._groups: dict[str, _Group] = {}

    def ask(self, id: int, message: HalfMessage) -> bool:
        """False if no producer is there that may decide the message. A message that was not taken yet keeps
        its place."""
        group = self._groups.get(message.group)
        if group is None:
            return False
        now, topics = asyncio.get_running_loop().time(), message.topics
        if not any(each.until > now and _may(each.guard, topics) for each in group.present.values()):
            return False
        group.due[id] = topics
        for waiter in group.waiting:
            if not waiter.done():
                waiter.set_result(None)
        return True

    async def take(self, name: str, guard: Guard, *, most: int, seconds: float) -> list[int]:
        """The ids of messages that a producer of the group is to decide, as soon as there are some, or none
        after `seconds`. Each is given to one producer: call `HalfMessages.was_taken` for those that it gets.
        Raises Unavailable."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        group = self._arrived(name, guard, deadline + GRACE_SECONDS)
        while True:
            found = [id for id, topics in group.due.items() if _may(guard, topics)][:most]
            for id in found:
                del group.due[id]
            undecided = [id for id in found if self._half_messages.find(id) is not None]
            if undecided or loop.time() >= deadline:
                return undecided
            waiter: asyncio.Future[None] = loop.create_future()
            group.waiting.add(waiter)
            try:
                async with asyncio.timeout_at(deadline):
                    await waiter
            except TimeoutError:
                pass  # one more look: the clock may have been just short of it
            finally:
                group.waiting.discard(waiter)

    def give_back(self, id: int, message: HalfMessage) -> None:
        """There was no room for it in an answer."""
        self.ask(id, message)

    def _arrived(self, name: str, guard: Guard, until: float) -> _Group:
        now = asyncio.get_running_loop().time()
        group = self._groups.get(name)
        if group is None:
            self._check_room(now)
            group = self._groups[name] = _Group()
        principal = str(guard.principal)
        known = group.present.get(principal)
        if known is None or known.until <= now:
            group.present = {who: each for who, each in group.present.items() if each.until > now}
            self._half_messages.producer_came(name)
        group.present[principal] = _Presence(guard, max(until, now if known is None else known.until))
        return group

    def _check_room(self, now: float) -> None:
        if len(self._groups) >= MOST_GROUPS:
            self._groups = {name: group for name, group in self._groups.items() if group.is_there(now)}
        if len(self._groups) >= MOST_GROUPS:
            raise Unavailable(f"producers of {MOST_GROUPS} groups ask for checks; end some of them")


def _may(guard: Guard, topics: Sequence[str]) -> bool:
    return all(guard.may(Operation.WRITE, Kind.TOPIC, topic) for topic in topics)
