"""A member of a consumer group in the older protocol: the members share the partitions out."""

import json
from random import Random

from posthouse.protocols.kafka.codec.generated.consumer_group_heartbeat import TopicPartitions
from posthouse.protocols.kafka.codec.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from posthouse.protocols.kafka.codec.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from posthouse.protocols.kafka.codec.generated.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from tests.checker.history import Partition
from tests.protocols.kafka.wire import Wire
from tests.torture.recording import Recorder
from tests.torture.stream.links import Topics, check
from tests.torture.stream.members import GroupMember
from tests.torture.stream.offsets import fetch_committed

_TYPE = "torture"
"""Not `consumer`: the broker is not to understand what the members tell each other."""
_PROTOCOL = "random"
_SESSION_MS = 3000


class ClassicMember(GroupMember):
    """Gives up all partitions before each rebalance."""

    expelled = frozenset(
        {
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.FENCED_INSTANCE_ID,
        }
    )

    def __init__(self, recorder: Recorder, topics: Topics, random: Random, group: str) -> None:
        super().__init__(recorder, topics, random, group)
        self._id = ""
        self._is_member = False

    def _leave(self, code: int) -> None:
        super()._leave(code)
        self._is_member = False
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._id = ""

    async def _beat(self, wire: Wire) -> None:
        if not self._is_member:
            members = await self._join()
            await self._take_over(wire, await self._sync(self._shares(members)))
            self._is_member = True
            return
        request = HeartbeatRequest(group_id=self._group, generation_id=self._epoch, member_id=self._id)
        check((await self._coordinator.ask(request, HeartbeatResponse)).error_code, "Heartbeat")

    async def _join(self) -> list[str]:
        """All members, for the leader; others are not told."""
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_SESSION_MS,
            member_id=self._id,
            protocol_type=_TYPE,
            protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=b"")],
        )
        answer = await self._coordinator.ask(request, JoinGroupResponse)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = answer.member_id
            answer = await self._coordinator.ask(request, JoinGroupResponse)
        check(answer.error_code, "JoinGroup")
        self._id, self._epoch = answer.member_id, answer.generation_id
        return [each.member_id for each in answer.members]

    def _shares(self, members: list[str]) -> dict[str, list[Partition]]:
        """Every member gets some partitions, and not the same ones as last time."""
        members = self._random.sample(members, len(members))
        return {member: self._topics.all()[number :: len(members)] for number, member in enumerate(members)}

    async def _sync(self, shares: dict[str, list[Partition]]) -> list[TopicPartitions]:
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._epoch,
            member_id=self._id,
            protocol_type=_TYPE,
            protocol_name=_PROTOCOL,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=json.dumps(share).encode())
                for member, share in shares.items()
            ],
        )
        answer = await self._coordinator.ask(request, SyncGroupResponse)
        check(answer.error_code, "SyncGroup")
        return [
            TopicPartitions(topic_id=self._topics.ids[name], partitions=[index])
            for name, index in json.loads(bytes(answer.assignment) or b"[]")
        ]

    async def _committed(self) -> dict[Partition, int | None]:
        return await fetch_committed(self._coordinator, self._topics, self._group)
