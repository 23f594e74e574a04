"""The consumers of a queue: round robin among those with the highest priority that have credit."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from posthouse.broker.queues.consumer_info import ConsumerInfo, Described
from posthouse.broker.queues.message import Consumer, Limiter, Message
from posthouse.model.errors import InUse


@dataclass(slots=True, eq=False)
class _Subscribed:
    consumer: Consumer
    priority: int
    exclusive: bool


@dataclass(slots=True, eq=False)
class _Hand:
    """The credit of a consumer that is left in this round."""

    consumer: Consumer
    credit: int


class Consumers:
    """In the order of their priority; among equals, the one that has waited longest comes first."""

    def __init__(self, *, single_active: bool) -> None:
        self._single_active = single_active
        self._subscribed: list[_Subscribed] = []

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

    def described(self) -> list[ConsumerInfo]:
        """Descriptions for operators."""
        active = self._eligible
        return [
            replace(
                each.consumer.info,
                priority=each.priority,
                is_exclusive=each.exclusive,
                is_active=each in active,
            )
            for each in self._subscribed
            if isinstance(each.consumer, Described)
        ]

    def all(self) -> list[Consumer]:
        return [each.consumer for each in self._subscribed]

    @property
    def _eligible(self) -> list[_Subscribed]:
        return self._subscribed[:1] if self._single_active else self._subscribed

    @property
    def credit(self) -> int:
        """Messages that all consumers together would take now."""
        total = 0
        shared: dict[Limiter, int] = {}
        for each in self._eligible:
            consumer = each.consumer
            credit = max(consumer.credit, 0)
            if consumer.limiter is None or not consumer.is_counted:
                total += credit
            else:
                shared[consumer.limiter] = shared.get(consumer.limiter, 0) + credit
        return total + sum(min(wanted, limiter.credit) for limiter, wanted in shared.items() if wanted)

    @property
    def have_credit(self) -> bool:
        return any(each.consumer.credit > 0 for each in self._eligible)

    def turns(self, most: int) -> list[Consumer]:
        """The consumers of the next messages: one entry for each message, `most` at most.

        Round robin among those with the highest priority that have credit. `served` advances it.
        """
        eligible = self._eligible
        if len(eligible) == 1:
            only = eligible[0].consumer
            return [only] * min(max(only.credit, 0), most)
        best: list[_Hand] = []
        priority: int | None = None
        for each in eligible:
            if priority is not None and each.priority != priority:
                break
            if (credit := each.consumer.credit) > 0:
                priority = each.priority
                best.append(_Hand(each.consumer, credit))
        return _dealt_round(best, most)

    def served(self, consumers: Sequence[Consumer]) -> None:
        """Move consumers that got messages behind the others of their priority."""
        if len(self._subscribed) < 2 or self._single_active:
            return
        last = {consumer: number for number, consumer in enumerate(consumers)}
        # Stable: the order of those that got nothing stays as it is, ahead of those that did.
        self._subscribed.sort(key=lambda each: (-each.priority, last.get(each.consumer, -1)))


def _dealt_round(hands: list[_Hand], most: int) -> list[Consumer]:
    left = _left_of_limiters(hands)
    turns: list[Consumer] = []
    place = 0
    while hands and len(turns) < most:
        place %= len(hands)
        hand = hands[place]
        consumer = hand.consumer
        limiter = consumer.limiter if left else None
        if hand.credit <= 0 or (limiter in left and left[limiter] <= 0):
            del hands[place]
            continue
        if limiter in left and consumer.is_counted:
            left[limiter] -= 1
        hand.credit -= 1
        turns.append(consumer)
        place += 1
    return turns


def _left_of_limiters(hands: Sequence[_Hand]) -> dict[Limiter | None, int]:
    """The credit of limiters that several of these consumers share; alone, its own credit is enough."""
    counts = Counter(hand.consumer.limiter for hand in hands)
    return {limiter: limiter.credit for limiter, count in counts.items() if limiter is not None and count > 1}


def dealt(messages: Sequence[Message], turns: Sequence[Consumer]) -> list[tuple[Consumer, list[Message]]]:
    """The messages of each consumer, in batches.

    Consumers that share a limiter are on one channel, where the client sees the order of the messages.
    """
    first = turns[0]
    if turns.count(first) == len(turns):
        return [(first, list(messages))]
    if first.limiter is not None and len({consumer.limiter for consumer in turns}) < len(set(turns)):
        return [(consumer, [message]) for message, consumer in zip(messages, turns, strict=False)]
    hands: dict[Consumer, list[Message]] = {}
    for message, consumer in zip(messages, turns, strict=False):
        hands.setdefault(consumer, []).append(message)
    return list(hands.items())
