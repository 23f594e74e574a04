"""Limits on what librdkafka's ShareConsumers of one group get together, set while they run."""

import threading
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.clients.test_share_confluent import QUIET, fill, joining, numbers, polled

pytestmark = pytest.mark.skipif(
    not hasattr(confluent_kafka, "ShareConsumer"),
    reason=f"confluent-kafka {confluent_kafka.version()} has no ShareConsumer; 2.16 has",
)
COUNT = 200


def limit(kafka: str, topic: str, **limits: str | None) -> None:
    """None lifts it."""
    entries = [
        ConfigEntry(
            f"posthouse.delivery.{name}",
            text or "",
            incremental_operation=AlterConfigOpType.DELETE if text is None else AlterConfigOpType.SET,
        )
        for name, text in limits.items()
    ]
    group = ConfigResource(ResourceType.GROUP, f"shares-of-{topic}", incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": kafka, **QUIET})
    admin.incremental_alter_configs([group])[group].result(30)


def test_members_together_hold_no_more_than_the_concurrency(kafka: str, topic: str) -> None:
    fill(kafka, topic, COUNT)
    limit(kafka, topic, concurrency="10")
    with joining(kafka, topic) as join:
        first = join()
        held = polled(first, 10)
        assert len(held) == 10, "a poll would have given hundreds"
        second = join()
        assert polled(second, 1, 2) == []
        first.commit_sync()
        limit(kafka, topic, concurrency=None)
        found = held + drained([first, second], COUNT - 10)
    assert numbers(found) == list(range(COUNT))


def test_a_rate_is_for_all_members_together(kafka: str, topic: str) -> None:
    """At one record in an hour, time plays no part."""
    fill(kafka, topic, COUNT)
    limit(kafka, topic, rate="1/h")
    with joining(kafka, topic) as join:
        consumers = [join(), join()]
        found = drained(consumers, 1)
        found += [message for each in consumers for message in polled(each, 1, 1)]
        assert len(found) == 1
        limit(kafka, topic, rate=None)
        found += drained(consumers, COUNT - 1)
    assert numbers(found) == list(range(COUNT))


def drained(consumers: list[Any], count: int) -> list[Any]:
    """What they get together, each on a thread of its own, until it is `count`. What a consumer got is
    acknowledged by its next poll."""
    found: list[Any] = []
    is_done = threading.Event()

    def work(consumer: Any) -> None:
        while not is_done.is_set():
            found.extend(polled(consumer, 1, 0.5))
            consumer.commit_sync()
            if len(found) >= count:
                is_done.set()

    threads = [threading.Thread(target=work, args=(each,)) for each in consumers]
    for thread in threads:
        thread.start()
    is_done.wait(120)
    is_done.set()
    for thread in threads:
        thread.join()
    return found
