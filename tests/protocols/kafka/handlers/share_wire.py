"""Members of share groups on the wire, for tests that look at single requests."""

from dataclasses import replace
from typing import Any

from posthouse.protocols.kafka.codec.generated import incremental_alter_configs as alter
from posthouse.protocols.kafka.codec.generated import share_acknowledge as acks
from posthouse.protocols.kafka.codec.generated import share_fetch as fetches
from posthouse.protocols.kafka.codec.generated.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from posthouse.protocols.kafka.codec.generated.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from posthouse.records.record import iter_records
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.wire import Wire

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)

Said = dict[int, list[tuple[int, int, list[int]]]]
"""By partition: first, last, and what is said of them."""


async def beat(wire: Wire, member: str, epoch: int = 0, **fields: Any) -> ShareGroupHeartbeatResponse:
    if epoch == 0:
        fields.setdefault("subscribed_topic_names", ["t"])
    request = ShareGroupHeartbeatRequest(
        group_id=fields.pop("group", "g"), member_id=member, member_epoch=epoch, **fields
    )
    return await wire.ask(request, ShareGroupHeartbeatResponse)


def set_defaults(broker: AsyncBroker, **defaults: int) -> None:
    """Of all groups; smaller than Kafka lets anybody set, so that tests need not wait."""
    configs = broker.app.broker.group_configs
    configs.set_defaults(replace(configs.defaults, **defaults))  # type: ignore[arg-type]


async def set_config(wire: Wire, group: str = "g", **settings: str) -> None:
    """Settings are given with underscores and without the first word."""
    resource = alter.AlterConfigsResource(
        resource_type=32,
        resource_name=group,
        configs=[
            alter.AlterableConfig(name="share." + name.replace("_", "."), config_operation=0, value=value)
            for name, value in settings.items()
        ],
    )
    request = alter.IncrementalAlterConfigsRequest(resources=[resource])
    answer = await wire.ask(request, alter.IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message


async def lag(wire: Wire, group: str = "g") -> dict[int, tuple[int, int]]:
    """By partition of the one topic that it reads: where it is, and how much is left."""
    request = DescribeShareGroupOffsetsRequest(groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group)])
    request.groups[0].topics = None
    answer = (await wire.ask(request, DescribeShareGroupOffsetsResponse)).groups[0]
    assert answer.error_code == 0
    return {
        each.partition_index: (each.start_offset, each.lag)
        for topic in answer.topics
        for each in topic.partitions
    }


class Got:
    """What one fetch brought from one partition."""

    def __init__(self, data: fetches.PartitionData) -> None:
        self.data = data
        self.runs = [(run.first_offset, run.last_offset, run.delivery_count) for run in data.acquired_records]

    @property
    def values(self) -> list[bytes | None]:
        """Of the records that were acquired, as a client would hand them out."""
        leased = {offset for first, last, _ in self.runs for offset in range(first, last + 1)}
        return [record.value for record in _records(self.data) if record.offset in leased]


def _records(data: fetches.PartitionData) -> list[Any]:
    records = memoryview(bytes(data.records or b""))
    found: list[Any] = []
    while records:
        size = int.from_bytes(records[8:12], "big") + 12
        found += iter_records(records[:size])
        records = records[size:]
    return found


class Member:
    """One member and its session."""

    def __init__(self, wire: Wire, topic: bytes, name: str = "m", group: str = "g") -> None:
        self.wire = wire
        self.topic = topic
        self.name = name
        self.group = group
        self.epoch = 0

    async def fetch(self, *partitions: int, said: Said | None = None, **fields: Any) -> dict[int, Got]:
        answer = await self.ask_fetch(*partitions, said=said, **fields)
        assert answer.error_code == 0, answer.error_message
        return {each.partition_index: Got(each) for topic in answer.responses for each in topic.partitions}

    async def take(self, **fields: Any) -> Got | None:
        """From partition 0, in a session that has it."""
        return (await self.fetch(*([0] if self.epoch == 0 else []), **fields)).get(0)

    async def ask_fetch(
        self, *partitions: int, said: Said | None = None, **fields: Any
    ) -> fetches.ShareFetchResponse:
        epoch = fields.pop("epoch", self.epoch)
        forget = fields.pop("forget", ())
        said = said or {}
        defaults = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 2**20, "max_records": 500}
        request = fetches.ShareFetchRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=epoch,
            **(defaults | fields),
            topics=[
                fetches.FetchTopic(
                    topic_id=self.topic,
                    partitions=[
                        fetches.FetchPartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                fetches.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in said.get(index, ())
                            ],
                        )
                        for index in dict.fromkeys((*partitions, *said))
                    ],
                )
            ],
            forgotten_topics_data=[
                fetches.ForgottenTopic(topic_id=self.topic, partitions=[index]) for index in forget
            ],
        )
        answer = await self.wire.ask(request, fetches.ShareFetchResponse)
        if answer.error_code == 0:
            self.epoch = 0 if epoch == -1 else epoch + 1
        return answer

    async def acknowledge(self, said: Said, **fields: Any) -> dict[int, int]:
        """By partition: the error code."""
        answer = await self.ask_acknowledge(said, **fields)
        assert answer.error_code == 0, answer.error_message
        return {
            each.partition_index: each.error_code for topic in answer.responses for each in topic.partitions
        }

    async def ask_acknowledge(self, said: Said, **fields: Any) -> acks.ShareAcknowledgeResponse:
        epoch = fields.pop("epoch", self.epoch)
        request = acks.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=epoch,
            topics=[
                acks.AcknowledgeTopic(
                    topic_id=self.topic,
                    partitions=[
                        acks.AcknowledgePartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                acks.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in batches
                            ],
                        )
                        for index, batches in said.items()
                    ],
                )
            ],
            **fields,
        )
        answer = await self.wire.ask(request, acks.ShareAcknowledgeResponse)
        if answer.error_code == 0:
            self.epoch = 0 if epoch == -1 else epoch + 1
        return answer


async def joined(wire: Wire, name: str = "m", *, partitions: int = 1, **settings: str) -> Member:
    """A member of the group g that reads the topic t from its start."""
    topic = await wire.create_topic("t", partitions)
    await set_config(wire, **({"auto_offset_reset": "earliest"} | settings))
    assert (await beat(wire, name)).error_code == 0
    return Member(wire, topic, name)
