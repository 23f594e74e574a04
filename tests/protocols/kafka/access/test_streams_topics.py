"""Streams groups and permissions: internal topics, and who sees a group."""

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.topics import NewTopic
from posthouse.protocols.kafka.codec.generated import streams_group_heartbeat as streams
from posthouse.protocols.kafka.codec.generated.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.access.roles import GROUP, TOPIC
from tests.protocols.kafka.access.scene import connected, permit
from tests.protocols.kafka.handlers.test_streams_groups import MISSING, beat, topology
from tests.protocols.kafka.wire import Wire

_O = Operation
USER, CHANGELOG = "streamer", "app-changelog"
STATEFUL = streams.Subtopology(
    subtopology_id="0",
    source_topics=[TOPIC],
    state_changelog_topics=[streams.TopicInfo(name=CHANGELOG)],
)


async def joined(wire: Wire, member: str = "m") -> streams.StreamsGroupHeartbeatResponse:
    return await beat(wire, 0, group_id=GROUP, member_id=member, topology=topology(STATEFUL))


async def described(wire: Wire) -> int:
    answer = await wire.ask(StreamsGroupDescribeRequest(group_ids=[GROUP]), StreamsGroupDescribeResponse)
    return answer.groups[0].error_code


async def test_internal_topics_need_their_permission(broker: AsyncBroker) -> None:
    inside = broker.app.broker
    await inside.create_topics([NewTopic(name=TOPIC, partitions=1)])
    await permit(inside, USER, _O.ALL, Kind.GROUP, GROUP)
    await permit(inside, USER, _O.DESCRIBE, Kind.TOPIC, TOPIC)
    async with connected(broker, USER) as wire:
        assert (await joined(wire)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await permit(inside, USER, _O.DESCRIBE, Kind.TOPIC, CHANGELOG)
        answer = await joined(wire)
        assert answer.error_code == 0
        [told] = [each for each in answer.status or () if each.status_code == MISSING]
        assert f"; Unauthorized to CREATE on topics {CHANGELOG}." in told.status_detail
        assert inside.topics.find(CHANGELOG) is None
        await permit(inside, USER, _O.CREATE, Kind.TOPIC, CHANGELOG)
        assert (await joined(wire)).error_code == 0
        assert inside.topics.find(CHANGELOG) is not None


async def test_a_group_is_shown_to_those_who_see_all_its_topics(broker: AsyncBroker) -> None:
    inside = broker.app.broker
    await inside.create_topics([NewTopic(name=TOPIC, partitions=1)])
    await permit(inside, USER, _O.DESCRIBE, Kind.GROUP, GROUP)
    await permit(inside, USER, _O.DESCRIBE, Kind.TOPIC, TOPIC)
    async with connected(broker, "admin") as admin, connected(broker, USER) as wire:
        assert (await joined(admin)).error_code == 0
        assert await described(wire) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await permit(inside, USER, _O.DESCRIBE, Kind.TOPIC, CHANGELOG)
        assert await described(wire) == 0
