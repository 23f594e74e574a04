"""The bytes that consumers exchange, against kio's schemas and what real clients write."""

import io
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from kio.schema.consumer_protocol_assignment.v0 import data as assignment_v0
from kio.schema.consumer_protocol_subscription.v0 import data as subscription_v0
from kio.schema.consumer_protocol_subscription.v3 import data as subscription_v3
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32

from posthouse.broker.groups.metadata import MemberSubscription, NamedPartition
from posthouse.protocols.kafka.consumer_protocol import ConsumerProtocol

PROTOCOL = ConsumerProtocol()
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
partitions = st.frozensets(st.builds(NamedPartition, names, st.integers(0, 2**31 - 1)), max_size=10)


def written(version: int, entity: Any) -> bytes:
    stream = io.BytesIO()
    entity_writer(type(entity))(stream, entity)
    return version.to_bytes(2, "big") + stream.getvalue()


def test_the_first_version() -> None:
    entity = subscription_v0.ConsumerProtocolSubscription(
        topics=(TopicName("t"), TopicName("ü")), user_data=b"whatever"
    )
    assert PROTOCOL.subscription("consumer", written(0, entity)) == MemberSubscription(topics=frozenset("tü"))


def test_the_newest_version() -> None:
    owned = subscription_v3.TopicPartition(topic=TopicName("t"), partitions=(i32(1), i32(5)))
    entity = subscription_v3.ConsumerProtocolSubscription(
        topics=(TopicName("t"),), user_data=None, owned_partitions=(owned,), generation_id=i32(3), rack_id="r"
    )
    assert PROTOCOL.subscription("consumer", written(3, entity)) == MemberSubscription(
        topics=frozenset("t"), owned=frozenset({NamedPartition("t", 1), NamedPartition("t", 5)})
    )


@pytest.mark.parametrize(
    "metadata", [b"", b"\0", b"\0\0\0\0\0\x05\0\x01t", b"\0\0\0\0\0\x01\0\x01\xff\0\0\0\0"]
)
def test_not_a_subscription(metadata: bytes) -> None:
    assert PROTOCOL.subscription("consumer", metadata) is None
    assert PROTOCOL.subscription("connect", metadata) is None


@given(partitions=partitions)
def test_assignments(partitions: frozenset[NamedPartition]) -> None:
    data = PROTOCOL.encoded_assignment(partitions)
    assert PROTOCOL.assignment(data) == partitions
    entity, size = entity_reader(assignment_v0.ConsumerProtocolAssignment)(data[2:], 0)
    assert size == len(data) - 2
    assert partitions == {
        NamedPartition(topic.topic, index)
        for topic in entity.assigned_partitions
        for index in topic.partitions
    }


@given(data=st.binary(max_size=60))
def test_garbage_is_harmless(data: bytes) -> None:
    PROTOCOL.assignment(data)
    PROTOCOL.subscription("consumer", data)
