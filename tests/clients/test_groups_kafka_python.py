"""Consumer groups with kafka-python."""

import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import NewTopic
    from kafka.structs import OffsetAndMetadata

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

PARTITIONS = 4
POLL_MS = 1000
"""kafka-python 3.0 throws a finished join away if no poll waits for it just then (join_group_async begins a
new one where the last `is_done`). With polls of 50 ms two members could keep each other busy for ever."""
Join = Callable[..., Any]


@pytest.fixture
def admin(kafka: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=kafka)
    yield client
    client.close()


@pytest.fixture
def filled(kafka: str, topic: str, admin: Any) -> str:
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    producer = KafkaProducer(bootstrap_servers=kafka)
    for number in range(100):
        producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    producer.flush(30)
    producer.close()
    return topic


@pytest.fixture
def join(kafka: str, filled: str) -> Iterator[Join]:
    opened: list[Any] = []

    def start(**config: Any) -> Any:
        consumer = KafkaConsumer(
            filled,
            **{
                "bootstrap_servers": kafka,
                "group_id": f"group-of-{filled}",
                "auto_offset_reset": "earliest",
                "enable_auto_commit": False,
                "session_timeout_ms": 6000,
                "heartbeat_interval_ms": 200,
                **config,
            },
        )
        opened.append(consumer)
        return consumer

    yield start
    for consumer in opened:
        consumer.close()


def until(consumers: list[Any], done: Callable[[], bool], seen: Counter[int]) -> None:
    """Poll each consumer on a thread of its own, as applications do, until it is `done`."""
    is_over = threading.Event()

    def poll(consumer: Any) -> None:
        while not is_over.is_set():
            for messages in consumer.poll(timeout_ms=POLL_MS).values():
                seen.update(int(message.value) for message in messages)

    with ThreadPoolExecutor(len(consumers)) as pool:
        polling = [pool.submit(poll, consumer) for consumer in consumers]
        deadline = time.monotonic() + 30
        while not done() and time.monotonic() < deadline:
            time.sleep(0.01)  # the client tells nobody of an assignment
        is_over.set()
    for each in polling:
        each.result()
    assert done(), [consumer.assignment() for consumer in consumers]


def share(consumer: Any) -> set[int]:
    return {each.partition for each in consumer.assignment()}


def test_two_members_share(join: Join) -> None:
    first, second = join(), join()
    seen = Counter[int]()
    until([first, second], lambda: len(share(first)) == len(share(second)) == 2, seen)
    assert share(first) | share(second) == set(range(PARTITIONS))
    second.close()
    until([first], lambda: len(share(first)) == PARTITIONS, seen)


def test_commit_and_resume(filled: str, join: Join) -> None:
    first, seen = join(), Counter[int]()
    until([first], lambda: len(seen) == 100, seen)
    first.commit({TopicPartition(filled, index): OffsetAndMetadata(20, "note", -1) for index in range(4)})
    first.close()
    second, again = join(), Counter[int]()
    until([second], lambda: len(again) == 20, again)
    assert set(again) == set(range(80, 100))
    committed = second.committed(TopicPartition(filled, 1), metadata=True)
    assert (committed.offset, committed.metadata) == (20, "note")


def test_a_static_member_restarts(join: Join) -> None:
    first, second, seen = join(group_instance_id="one"), join(group_instance_id="two"), Counter[int]()
    until([first, second], lambda: len(share(first)) == len(share(second)) == 2, seen)
    kept, untouched = share(first), share(second)
    first.close()
    again = join(group_instance_id="one")
    until([again, second], lambda: share(again) == kept, seen)
    assert share(second) == untouched


def test_groups_as_tools_see_them(filled: str, join: Join, admin: Any) -> None:
    group = f"group-of-{filled}"
    consumer, seen = join(), Counter[int]()
    until([consumer], lambda: len(seen) == 100, seen)
    consumer.commit()
    described = admin.describe_groups([group])
    assert described[group]["group_state"] == "Stable"
    assert len(described[group]["members"]) == 1
    assert group in {each["group_id"] for each in admin.list_groups()}
    offsets = admin.list_group_offsets(group)
    assert {partition.partition: each.offset for partition, each in offsets[group].items()} == dict.fromkeys(
        range(4), 25
    )
    consumer.close()
    admin.delete_groups([group])
    assert group not in {each["group_id"] for each in admin.list_groups()}
