"""The offsets of the archive say which records the broker may delete: to move them takes that permission."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posthouse.broker.access.operations import Kind, Operation
from posthouse.model.ids import ARCHIVE_GROUP
from posthouse.protocols.kafka.codec.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.access.scene import connected, permit, secured
from tests.protocols.kafka.wire import Wire


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[AsyncBroker]:
    async with secured(tmp_path) as made:
        for kind in (Kind.TOPIC, Kind.GROUP):
            await permit(made.app.broker, "reader", Operation.READ, kind, "*")
        async with connected(made, "admin") as wire:
            await wire.create_topic("t")
        yield made


async def commit(wire: Wire, broker: AsyncBroker, group: str) -> int:
    topic = OffsetCommitRequestTopic(
        topic_id=broker.app.broker.topic("t").id,
        partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=0)],
    )
    request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=[topic])
    answer = await wire.ask(request, OffsetCommitResponse)
    return answer.topics[0].partitions[0].error_code


async def test_whoever_reads_with_any_group_does_not_speak_for_the_archive(broker: AsyncBroker) -> None:
    async with connected(broker, "reader") as wire:
        assert await commit(wire, broker, "any") == ErrorCode.NONE
        assert await commit(wire, broker, ARCHIVE_GROUP) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await permit(broker.app.broker, "reader", Operation.DELETE, Kind.TOPIC, "t")
        assert await commit(wire, broker, ARCHIVE_GROUP) == ErrorCode.NONE
