"""Unacknowledged deliveries of a channel, by delivery tag."""

from collections.abc import Iterable
from typing import Protocol, TypeAlias

from posthouse.broker.queues.message import Message, MessageSource
from posthouse.protocols.amqp.errors import Refused, precondition_failed


class Prefetching(Protocol):
    """The consumer of a delivery, as far as settling needs it."""

    unacked: int


# A tuple and no class: there is one for every message that is delivered.
Delivery: TypeAlias = tuple[int, Message, Prefetching | None]
"""Tag, message, and the consumer that got it; None for basic.get."""


class Deliveries:
    """Tags count up from 1 for every delivery of the channel, also for those that need no acknowledgement."""

    __slots__ = ("_lowest", "gotten", "held", "last_tag")

    def __init__(self) -> None:
        self.held: dict[int, Delivery] = {}
        self.last_tag = 0
        self.gotten = 0
        """Number of those held that were fetched by basic.get: no prefetch counts them."""
        self._lowest = 1
        """All tags below are settled."""

    def hold(self, message: Message) -> int:
        """The tag of a message that was fetched by basic.get."""
        self.last_tag += 1
        self.held[self.last_tag] = (self.last_tag, message, None)
        self.gotten += 1
        return self.last_tag

    def take(self, tag: int, multiple: bool) -> list[Delivery]:
        """One delivery, or all up to `tag`; with 0 all of them. Raises Refused where `tag` is unknown."""
        if multiple and tag == 0:
            return self.take_all()
        if tag not in self.held:
            raise unknown_tag(tag)
        taken = self._up_to(tag) if multiple else [self.held.pop(tag)]
        self.gotten -= sum(1 for _, _, consumer in taken if consumer is None)
        return taken

    def _up_to(self, tag: int) -> list[Delivery]:
        held = self.held
        candidates: Iterable[int] = range(self._lowest, tag + 1)
        if len(held) < tag - self._lowest:
            candidates = [each for each in held if each <= tag]
        self._lowest = tag + 1
        return [held.pop(each) for each in candidates if each in held]

    def take_all(self) -> list[Delivery]:
        taken = list(self.held.values())
        self.held.clear()
        self.gotten = 0
        self._lowest = self.last_tag + 1
        return taken

    def put_back(self, deliveries: Iterable[Delivery]) -> None:
        """The deliveries were taken, but are not settled after all."""
        for delivery in deliveries:
            tag, _, consumer = delivery
            self.held[tag] = delivery
            self.gotten += consumer is None
            self._lowest = min(self._lowest, tag)


def unknown_tag(tag: int) -> Refused:
    return precondition_failed(f"unknown delivery tag {tag}")


def by_queue(deliveries: Iterable[Delivery]) -> dict[MessageSource, list[Message]]:
    queues: dict[MessageSource, list[Message]] = {}
    for _, message, _ in deliveries:
        queues.setdefault(message.queue, []).append(message)
    return queues
