"""Brokers that break their promises to gRPC consumers, for negative controls."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from posthouse.app import App
from posthouse.broker.half_messages.half_messages import HalfMessages
from posthouse.broker.subscriptions.dead_letters import DeadLetters
from posthouse.broker.subscriptions.partition import SubscribedPartition
from posthouse.broker.subscriptions.partitions import SubscribedPartitions
from posthouse.model.clock import Clock
from posthouse.model.ids import GroupId, MemberId
from posthouse.protocols.rocketmq.grpc.groups import GrpcGroups
from tests.torture.brokers import Recipe
from tests.torture.kinds.killing import Kill

_LATER_SECONDS: Final = 1.0
_SHORT_LEASE_SECONDS: Final = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRecipe(Recipe):
    disturb: Callable[[], None]
    """What it does wrong, in a process of its own."""

    async def served(self, clock: Clock) -> App:
        self.disturb()
        return App(self.settings(), clock=clock, storage=self.storage(clock))


class Broken(Kill):
    def __init__(self, disturb: Callable[[], None]) -> None:
        self._disturb = disturb

    def recipe(self, place: Path, random: Random) -> Recipe:
        return BrokenRecipe(data=place / "data", log=place / "broker.log", disturb=self._disturb)


def answer_too_early() -> None:
    """Acknowledgements are answered before they are stored."""
    store, storing = SubscribedPartitions.store, set()

    async def later(partitions: SubscribedPartitions, changed: Iterable[SubscribedPartition]) -> None:
        await asyncio.sleep(_LATER_SECONDS)
        await store(partitions, changed)

    async def stored(partitions: SubscribedPartitions, changed: Iterable[SubscribedPartition]) -> None:
        task = asyncio.create_task(later(partitions, list(changed)))
        storing.add(task)
        task.add_done_callback(storing.discard)

    SubscribedPartitions.store = stored  # type: ignore[method-assign, assignment]
    SubscribedPartitions.changed = lambda *_: None  # type: ignore[method-assign]


def _never(groups: GrpcGroups, group: GroupId) -> bool:
    return False


def ignore_order() -> None:
    """Ordered groups get messages like any other."""
    GrpcGroups.is_ordered = _never  # type: ignore[method-assign, assignment]


def forget_leases() -> None:
    """Leases are forgotten long before they are over."""
    lease = SubscribedPartition._lease

    def short(
        subscribed: SubscribedPartition, first: int, last: int, member: MemberId, _: float, **how: bool
    ) -> None:
        lease(subscribed, first, last, member, time.monotonic() + _SHORT_LEASE_SECONDS, **how)

    SubscribedPartition._lease = short  # type: ignore[method-assign, assignment]


def drop_dead_letters() -> None:
    """They are settled, and never copied."""

    async def dropped(letters: DeadLetters, group: GroupId, *_: Any) -> None:
        """No-op."""

    DeadLetters.copy = dropped  # type: ignore[method-assign, assignment]


def commit_everything() -> None:
    """Also half messages that their producer rolls back."""
    decide = HalfMessages.decide

    def committed(halves: HalfMessages, id: int, *, group: str, commit: bool) -> "asyncio.Future[Any]":
        return decide(halves, id, group=group, commit=True)

    HalfMessages.decide = committed  # type: ignore[method-assign, assignment]


BREAKING: Final = (
    (answer_too_early, "ack came back"),
    (ignore_order, "lane order"),
    (forget_leases, "shared lease"),
    (drop_dead_letters, "lost dead letter|lost message"),
    (commit_everything, "aborted read|refused message"),
)
"""With what one of the anomalies must say."""
