"""What must be true of queues after crashes, checked against what their clients were told before them."""

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message that a consumer was handed. Values are '<publisher>:<number>', numbers rising."""

    queue: str
    value: str
    redelivered: bool


@dataclass(slots=True)
class QueueHistory:
    """What publishers and consumers saw, over any number of crashes."""

    queues: tuple[str, ...]
    """Every message goes to each of them."""
    sent: set[str] = field(default_factory=set)
    confirmed: set[str] = field(default_factory=set)
    deliveries: list[Delivery] = field(default_factory=list)
    settled: set[tuple[str, str]] = field(default_factory=set)
    """Queue and value of messages whose acknowledgement the broker said is durable."""
    came_back: list[Delivery] = field(default_factory=list)

    def deliver(self, delivery: Delivery) -> None:
        if (delivery.queue, delivery.value) in self.settled:
            self.came_back.append(delivery)
        self.deliveries.append(delivery)


def check_queues(history: QueueHistory) -> list[str]:
    """After everything was drained: every way in which a promise was broken."""
    found = [
        f"{each.value} came back to {each.queue} after its end was durable" for each in history.came_back
    ]
    seen: defaultdict[str, set[str]] = defaultdict(set)
    for delivery in history.deliveries:
        seen[delivery.queue].add(delivery.value)
    for queue in history.queues:
        found += [
            f"{value} was confirmed and never came to {queue}" for value in history.confirmed - seen[queue]
        ]
        found += [f"{value} in {queue} was never sent" for value in seen[queue] - history.sent]
    return found + _out_of_order(history)


def _out_of_order(history: QueueHistory) -> list[str]:
    """What one publisher sent earlier comes earlier, but for what is delivered again."""
    found = []
    latest: defaultdict[tuple[str, str], int] = defaultdict(lambda: -1)
    for delivery in history.deliveries:
        publisher, _, number = delivery.value.partition(":")
        key = (delivery.queue, publisher)
        if not delivery.redelivered and int(number) < latest[key]:
            found.append(f"{delivery.value} came to {delivery.queue} after {publisher}:{latest[key]}")
        latest[key] = max(latest[key], int(number))
    return found
