"""The queues' part of a history, sorted for the checks; messages that are missing, and that should be."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate
from math import inf

from tests.checker.history import (
    Ack,
    Bury,
    DeadLetters,
    Deliver,
    Drained,
    Fault,
    Lease,
    Operation,
    Outcome,
    Publish,
    Subscribe,
    Takeover,
)
from tests.checker.report import Anomaly, Kind

Key = tuple[str, int]
"""A queue and a value."""


class Queues:
    def __init__(self, history: Iterable[Operation]) -> None:
        self.publishes: dict[Key, Publish] = {}
        self.consumers: defaultdict[int, list[Subscribe | Deliver]] = defaultdict(list)
        self.deliveries: defaultdict[Key, list[Deliver]] = defaultdict(list)
        self.acks: defaultdict[Key, list[Ack | Bury]] = defaultdict(list)
        self.drained: defaultdict[str, list[Drained]] = defaultdict(list)
        self.dead: defaultdict[str, set[int]] = defaultdict(set)
        """Dead letters."""
        self.consumed: set[str] = set()
        """Queues that had a consumer before the last one."""
        self._upsets: list[tuple[int, int]] = []
        """The end and the beginning of each fault and takeover."""
        for operation in history:
            self._add(operation)
        self._upsets.sort()
        earliest = accumulate((since for _, since in reversed(self._upsets)), min)
        self._calm_until = [*reversed([*earliest]), inf]
        """The earliest beginning of each upset and those after it."""

    def _add(self, operation: Operation) -> None:
        match operation:
            case Publish():
                key = (operation.queue, operation.value)
                if key in self.publishes:
                    raise ValueError(f"message {key} was published twice, but values must be unique")
                self.publishes[key] = operation
            case Deliver():
                self.consumers[operation.process].append(operation)
                self.deliveries[operation.queue, operation.value].append(operation)
                self.consumed.add(operation.queue)
            case Subscribe():
                self.consumers[operation.process].append(operation)
                self.consumed.add(operation.queue)
            case Ack() | Bury():
                self.acks[operation.queue, operation.value].append(operation)
            case Lease():
                self._add_lease(operation)
            case DeadLetters():
                self.dead[operation.queue].update(operation.values)
            case Drained():
                self.drained[operation.queue].append(operation)
            case Fault():
                self._upsets.append((operation.at, operation.at))
            case Takeover():
                self._upsets.append((operation.at, operation.since))
            case _:
                pass  # the log's

    def _add_lease(self, lease: Lease) -> None:
        """What a call hands out is chosen after the call has begun, as if the consumer had subscribed
        then."""
        again = lease.attempt > 1
        self._add(Subscribe(lease.process, lease.invoked, lease.queue))
        self._add(Deliver(lease.process, lease.completed, lease.queue, lease.value, again))

    def calm_until(self, publish: Publish) -> float:
        """The time of the first fault or takeover that the message lived through."""
        return self._calm_until[bisect_left(self._upsets, (publish.invoked, 0))]


def check_queues(queues: Queues) -> Iterator[Anomaly]:
    drained = {
        (queue, value) for queue, each in queues.drained.items() for last in each for value in last.values
    }
    yield from _lost(queues, drained)
    yield from _came_back_at_the_end(queues, drained)
    yield from _came_back(queues)
    yield from _uninvited(queues, drained)


def _lost(queues: Queues, drained: set[Key]) -> Iterator[Anomaly]:
    """A confirmed message is there until it is acknowledged: if no acknowledgement was ever sent, the last
    consumer finds it, or it is among the dead letters. Whoever consumes without acknowledgements records
    unknown ones."""
    for (queue, value), publish in queues.publishes.items():
        if publish.outcome is not Outcome.OK or queue not in queues.drained or (queue, value) in drained:
            continue
        if value in queues.dead.get(queue, ()):
            continue
        if all(ack.outcome is Outcome.FAILED for ack in queues.acks.get((queue, value), ())):
            text = f"{value} was confirmed in {queue}, not acknowledged, and is not there in the end"
            yield Anomaly(Kind.LOST_MESSAGE, text, (value,))


def _came_back_at_the_end(queues: Queues, drained: set[Key]) -> Iterator[Anomaly]:
    """A message whose acknowledgement is durable is not in the queue in the end."""
    for key, acks in queues.acks.items():
        if key in drained and any(ack.outcome is Outcome.OK for ack in acks):
            text = f"{key[1]} was in {key[0]} in the end though it was acknowledged for good"
            yield Anomaly(Kind.ACK_CAME_BACK, text, (key[1],))


def _came_back(queues: Queues) -> Iterator[Anomaly]:
    """Nor is it ever handed out again. What counts is when the broker sent it, as it may have lain unread on
    the connection of a slow consumer. It was surely sent after the acknowledgement if that was this
    consumer's own; or if the consumer subscribed later, or was handed something that was published later."""
    for process, operations in queues.consumers.items():
        sent_after = -1
        for operation in operations:
            if isinstance(operation, Subscribe):
                sent_after = max(sent_after, operation.at)
                continue
            key = (operation.queue, operation.value)
            publish = queues.publishes.get(key)
            if publish is not None:
                sent_after = max(sent_after, publish.invoked)
            for ack in queues.acks.get(key, ()):
                limit = operation.at if ack.process == process else sent_after
                if ack.outcome is Outcome.OK and ack.completed < limit:
                    text = f"{operation.value} came to consumer {process} of {operation.queue}"
                    text = f"{text} after it was acknowledged for good"
                    yield Anomaly(Kind.ACK_CAME_BACK, text, (operation.value,))


def _uninvited(queues: Queues, drained: set[Key]) -> Iterator[Anomaly]:
    """Every message that is handed out was published to that queue, and was not surely refused."""
    dead = [(queue, value) for queue, values in queues.dead.items() for value in sorted(values)]
    for queue, value in dict.fromkeys([*queues.deliveries, *sorted(drained), *dead]):
        publish = queues.publishes.get((queue, value))
        if publish is None:
            text = f"{value} came from {queue}, where nobody published it"
            yield Anomaly(Kind.PHANTOM_MESSAGE, text, (value,))
        elif publish.outcome is Outcome.FAILED:
            text = f"{value} came from {queue} though its publish failed"
            yield Anomaly(Kind.REFUSED_MESSAGE, text, (value,))
