"""The order in which messages are handed out, and the mark of those that are handed out again."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.checker.history import Deliver, Drained, Outcome, Publish, Subscribe
from tests.checker.queues import Queues
from tests.checker.report import Anomaly, Kind


def check_deliveries(queues: Queues) -> Iterator[Anomaly]:
    yield from _unmarked(queues)
    yield from _drained_twice(queues)
    for process, operations in queues.consumers.items():
        yield from _order_of_deliveries(queues, process, operations)
    for queue, drained in queues.drained.items():
        if queue not in queues.consumed:
            for each in drained:
                yield from _order_of_the_untouched(queues, each)


def _unmarked(queues: Queues) -> Iterator[Anomaly]:
    """A message is handed out once without the mark *redelivered*. After a fault or a takeover the broker may
    have forgotten whether it was, so what comes after the first one is not judged."""
    for (queue, value), deliveries in queues.deliveries.items():
        publish = queues.publishes.get((queue, value))
        if len(deliveries) < 2 or publish is None:
            continue
        calm = queues.calm_until(publish)
        unmarked = sum(not each.redelivered and each.at < calm for each in deliveries)
        if unmarked > 1:
            text = f"{value} came {unmarked} times from {queue} as if for the first time"
            yield Anomaly(Kind.UNMARKED_REDELIVERY, text, (value,))


def _drained_twice(queues: Queues) -> Iterator[Anomaly]:
    """The last consumer, which gives nothing back, finds each message once."""
    for queue, drained in queues.drained.items():
        for each in drained:
            for value, count in Counter(each.values).items():
                if count > 1:
                    text = f"{value} was in {queue} {count} times in the end"
                    yield Anomaly(Kind.UNMARKED_REDELIVERY, text, (value,))


def _order_of_deliveries(
    queues: Queues, process: int, operations: list[Subscribe | Deliver]
) -> Iterator[Anomaly]:
    """A queue hands out what a publisher sent first before what it sent later. So a consumer that has had
    the later message cannot be handed the earlier one for the first time. That holds with any number of
    consumers: had another one had the earlier message, it would be marked; what is marked is not judged. The
    earlier one must be confirmed, as an unconfirmed one may be late, and must not have lived through a fault,
    which may take its mark away. When different consumers were handed something is not compared."""
    latest: dict[tuple[str, int], Publish] = {}
    for delivery in operations:
        if not isinstance(delivery, Deliver):
            continue
        publish = queues.publishes.get((delivery.queue, delivery.value))
        if publish is None:
            continue
        key = (delivery.queue, publish.process)
        before = latest.setdefault(key, publish)
        if publish.invoked > before.invoked:
            latest[key] = publish
        elif publish.invoked < before.invoked and _is_first_and_sure(queues, publish, delivery):
            text = f"consumer {process} of {delivery.queue} got {delivery.value} after {before.value}"
            text = f"{text}, which process {publish.process} published later"
            yield Anomaly(Kind.QUEUE_ORDER, text, (before.value, delivery.value))


def _is_first_and_sure(queues: Queues, publish: Publish, delivery: Deliver) -> bool:
    if delivery.redelivered or publish.outcome is not Outcome.OK:
        return False
    return delivery.at < queues.calm_until(publish)


def _order_of_the_untouched(queues: Queues, drained: Drained) -> Iterator[Anomaly]:
    """In a queue that had no other consumer the last one finds what a publisher sent in the order in which it
    was sent, but for what was not confirmed and so may have come late."""
    latest: defaultdict[int, int] = defaultdict(int)
    for value in drained.values:
        publish = queues.publishes.get((drained.queue, value))
        if publish is None:
            continue
        if publish.outcome is Outcome.OK and publish.invoked < latest[publish.process]:
            text = f"{value} was in {drained.queue} behind what process {publish.process} published later"
            yield Anomaly(Kind.QUEUE_ORDER, text, (value,))
        latest[publish.process] = max(latest[publish.process], publish.invoked)
