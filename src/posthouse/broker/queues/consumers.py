"""Who gets the messages of a queue, and whose turn it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from posthouse.model.errors import InUse

if TYPE_CHECKING:
    from posthouse.broker.queues.message import Message


class Consumer(Protocol):
    """Made by a protocol."""

    @property
    def credit(self) -> int:
        """How many more messages it may be handed now."""

    def deliver(self, messages: "Sequence[Message]") -> None:
        """Synchronous. The consumer lowers its own credit."""

    def cancelled(self) -> None:
        """The queue is gone."""


@dataclass(slots=True, eq=False)
class _Subscribed:
    consumer: Consumer
    priority: int
    exclusive: bool


class Consumers:
    """In the order of their priority, then of their coming."""

    def __init__(self, *, single_active: bool) -> None:
        self._single_active = single_active
        self._subscribed: list[_Subscribed] = []
        self._turn = 0

    def __len__(self) -> int:
        return len(self._subscribed)

    def __contains__(self, consumer: Consumer) -> bool:
        return any(each.consumer is consumer for each in self._subscribed)

    def add(self, consumer: Consumer, *, exclusive: bool, priority: int) -> None:
        if self._subscribed and (exclusive or any(each.exclusive for each in self._subscribed)):
            raise InUse("the queue is in exclusive use")
        new = _Subscribed(consumer, priority, exclusive)
        place = next(
            (number for number, each in enumerate(self._subscribed) if each.priority < priority),
            len(self._subscribed),
        )
        if self._single_active and self._subscribed and place == 0:
            place = 1  # the active one stays until it leaves
        self._subscribed.insert(place, new)

    def remove(self, consumer: Consumer) -> bool:
        for number, each in enumerate(self._subscribed):
            if each.consumer is consumer:
                del self._subscribed[number]
                return True
        return False

    def all(self) -> list[Consumer]:
        return [each.consumer for each in self._subscribed]

    @property
    def credit(self) -> int:
        """How many messages would be taken at once."""
        subscribed = self._subscribed[:1] if self._single_active else self._subscribed
        return sum(max(each.consumer.credit, 0) for each in subscribed)

    def next_in_turn(self) -> list[Consumer]:
        """Those with the highest priority that have credit, from the one whose turn it is."""
        subscribed = self._subscribed[:1] if self._single_active else self._subscribed
        if len(subscribed) == 1:
            only = subscribed[0].consumer
            return [only] if only.credit > 0 else []
        able = [each for each in subscribed if each.consumer.credit > 0]
        if not able:
            return []
        best = [each.consumer for each in able if each.priority == able[0].priority]
        self._turn += 1
        start = self._turn % len(best)
        return best[start:] + best[:start]


def dealt(
    messages: "Sequence[Message]", consumers: Sequence[Consumer]
) -> "list[tuple[Consumer, list[Message]]]":
    """Share messages out one by one, as far as each has credit."""
    if len(consumers) == 1:
        return [(consumers[0], list(messages))]
    hands: list[tuple[Consumer, list[Message]]] = [(consumer, []) for consumer in consumers]
    open_hands = [(consumer.credit, hand) for consumer, hand in hands]
    turn = 0
    for message in messages:
        while True:
            credit, hand = open_hands[turn % len(open_hands)]
            if len(hand) < credit:
                break
            open_hands.pop(turn % len(open_hands))
        hand.append(message)
        turn = (turn % len(open_hands)) + 1
    return [(consumer, hand) for consumer, hand in hands if hand]
