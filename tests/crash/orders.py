"""Order that only these loads can ask for.

The checker has to allow for clients that send again, and for brokers that forget marks in a crash. Here every
client sends everything once, over one connection, and a queue has one consumer at a time: so there is an
order also in what was not acknowledged, and over kills.
"""

from collections import defaultdict
from collections.abc import Iterator

from tests.checker.history import Deliver, FinalRead, History, Publish, Send


def check_orders(history: History) -> list[str]:
    return [*_records(history), *_deliveries(history)]


def _records(history: History) -> Iterator[str]:
    """In a partition, what a producer sent earlier comes earlier, whatever it was told of it."""
    sends = {each.value: each for each in history if isinstance(each, Send)}
    for read in (each for each in history if isinstance(each, FinalRead)):
        latest: dict[int, Send] = {}
        for offset, value in read.records:
            if (send := sends.get(value)) is None:
                continue  # the checker says so
            before = latest.setdefault(send.process, send)
            if send.invoked < before.invoked:
                text = f"{value} at {offset} of {read.partition} comes after {before.value}"
                yield f"{text}, which was sent later"
            else:
                latest[send.process] = send


def _deliveries(history: History) -> Iterator[str]:
    """A queue hands out what a publisher sent earlier earlier, and nothing as new that it has handed out
    before: also if it was killed in between."""
    publishes = {(each.queue, each.value): each for each in history if isinstance(each, Publish)}
    latest: defaultdict[tuple[str, int], int] = defaultdict(int)
    for delivery in (each for each in history if isinstance(each, Deliver)):
        if (publish := publishes.get((delivery.queue, delivery.value))) is None:
            continue  # the checker says so
        key = (delivery.queue, publish.process)
        if not delivery.redelivered and publish.invoked <= latest[key]:
            yield f"{delivery.value} came from {delivery.queue} as new, after it or what was sent after it"
        latest[key] = max(latest[key], publish.invoked)
