"""The requests of a group's members, in the older of the two protocols: the members share partitions out."""

import json
from dataclasses import dataclass

from posthouse.protocols.kafka.codec.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from posthouse.protocols.kafka.codec.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from posthouse.protocols.kafka.codec.generated.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from posthouse.protocols.kafka.codec.generated.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from tests.checker.history import Partition
from tests.simulation.kafka_client import KafkaClient, Refused, check

_TYPE = "simulated"
"""Not `consumer`: the broker is not to understand what the members tell each other."""
_PROTOCOL = "in turn"


@dataclass(frozen=True, slots=True)
class Joined:
    member: str
    generation: int
    leader: str
    members: list[str]
    """All of them, for the leader; others are not told."""


class GroupClient:
    def __init__(self, client: KafkaClient, group: str) -> None:
        self.client = client
        self.group = group

    async def join(self, member: str, session_ms: int) -> Joined:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=session_ms,
            member_id=member,
            protocol_type=_TYPE,
            protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=b"")],
        )
        answer = await self.client.ask(request, JoinGroupResponse)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = answer.member_id
            answer = await self.client.ask(request, JoinGroupResponse)
        check(answer.error_code)
        members = [each.member_id for each in answer.members]
        return Joined(answer.member_id, answer.generation_id, answer.leader, members)

    async def sync(self, joined: Joined, shares: dict[str, list[Partition]]) -> list[Partition]:
        """What this member is to read. `shares` are everybody's, from the leader."""
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation,
            member_id=joined.member,
            protocol_type=_TYPE,
            protocol_name=_PROTOCOL,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=json.dumps(share).encode())
                for member, share in shares.items()
            ],
        )
        answer = await self.client.ask(request, SyncGroupResponse)
        check(answer.error_code)
        return [(topic, index) for topic, index in json.loads(bytes(answer.assignment) or b"[]")]

    async def heartbeat(self, joined: Joined) -> None:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=joined.generation, member_id=joined.member
        )
        check((await self.client.ask(request, HeartbeatResponse)).error_code)

    async def leave(self, member: str) -> None:
        request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=member)])
        answer = await self.client.ask(request, LeaveGroupResponse)
        check(answer.error_code)

    async def commit(self, joined: Joined, offsets: dict[Partition, int]) -> None:
        await self.client.commit_offsets(self.group, offsets, joined.member, joined.generation)


def is_over(error: Refused) -> bool:
    """Whether the member's time in its generation is over: it may come again, or has to begin anew."""
    return error.code in (
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
    )
