"""Consumer groups: how long a rebalance takes the broker, and how many offsets it can keep."""

import asyncio
import time

from bench import wire
from posthouse.protocols.kafka.codec.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from posthouse.protocols.kafka.codec.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from posthouse.protocols.kafka.codec.generated.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from posthouse.protocols.kafka.codec.primitives import Message
from tests.wire.kafka import SIZE, RequestEncoder, ResponseT

MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS = 79, 27


class Member:
    """One member that does nothing but answer as fast as it can."""

    def __init__(self, group: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._group = group
        self._reader = reader
        self._writer = writer
        self._requests = RequestEncoder(wire.CLIENT_ID)
        self._id = ""
        self._metadata = 0

    async def rejoin(self) -> None:
        """Join with something new to say, until everybody is in the same generation."""
        self._metadata += 1
        while not await self._try():
            pass

    async def _try(self) -> bool:
        joined = await self._join()
        if joined.error_code == MEMBER_ID_REQUIRED:
            self._id = joined.member_id
            joined = await self._join()
        if joined.error_code:
            raise RuntimeError(f"joining failed with {joined.error_code}")
        self._id = joined.member_id
        assignments = [
            SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"a")
            for member in joined.members
        ]
        synced = await self._ask(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=joined.generation_id,
                member_id=self._id,
                protocol_type="consumer",
                protocol_name="bench",
                assignments=assignments,
            ),
            SyncGroupResponse,
        )
        if synced.error_code not in (0, REBALANCE_IN_PROGRESS):
            raise RuntimeError(f"syncing failed with {synced.error_code}")
        return synced.error_code == 0

    async def _join(self) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=self._id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="bench", metadata=self._metadata.to_bytes(4, "big"))],
        )
        return await self._ask(request, JoinGroupResponse)

    async def _ask(self, request: Message, response: type[ResponseT]) -> ResponseT:
        chunks, pending = self._requests.encode(request)
        self._writer.writelines(chunks)
        (size,) = SIZE.unpack(await self._reader.readexactly(SIZE.size))
        return pending.response(memoryview(await self._reader.readexactly(size)), response)

    def close(self) -> None:
        self._writer.close()


def rebalance_seconds(port: int, members: int) -> float:
    """From the first rejoin to the last synced member, all of them rejoining at once."""
    return asyncio.run(_rebalance(port, members))


async def _rebalance(port: int, count: int) -> float:
    group = f"group-of-{count}"
    members = [
        Member(group, *await asyncio.open_connection("127.0.0.1", port, limit=2**24)) for _ in range(count)
    ]
    await asyncio.gather(*(member.rejoin() for member in members))
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        await asyncio.gather(*(member.rejoin() for member in members))
        times.append(time.perf_counter() - begun)
    for member in members:
        member.close()
    return sorted(times)[len(times) // 2]


def offset_commits(port: int, topic: bytes, count: int) -> float:
    """Requests with one offset each, answered when durable, per second."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    frames = [
        wire.frame(
            OffsetCommitRequest(
                group_id=f"bench-{number}",
                topics=[OffsetCommitRequestTopic(topic_id=topic, partitions=[partition])],
            )
        )
        for number in range(100)
    ]
    total = sum(map(len, frames)) * count // len(frames)
    load = wire.push(port, frames, total, 100)
    return len(load.latencies) / load.seconds
