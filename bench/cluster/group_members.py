"""Very many consumer groups with one member each, which is connected to the coordinator of its group."""

import asyncio
import contextlib
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from bench import wire
from bench.cluster.coordinators import NotNow, coordinator_ports, until_done
from bench.queues.workers import Tally
from posthouse.client.errors import ClientError
from posthouse.protocols.kafka.codec.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from posthouse.protocols.kafka.codec.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from posthouse.protocols.kafka.codec.generated.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from posthouse.protocols.kafka.codec.primitives import Message
from tests.wire.kafka import SIZE, RequestEncoder, ResponseT

PARTITIONS = 10
"""With a committed offset, in each group."""
_SESSION_MS = 30 * 60 * 1000
"""Longer than it is measured: a member that is idle sends no heartbeats."""
_AT_ONCE = 64
_SETTLED_SECONDS = 8.0
_LOOK_SECONDS = 0.2
_MEMBER_ID_REQUIRED = 79
_NOT_NOW = frozenset({14, 15, 16})
"""The coordinator is loading, not known, or another one."""


def group_name(number: int) -> str:
    return f"group-{number:06}"


def coordinators(port: int, count: int) -> dict[str, int]:
    """The port of the coordinator of each group, when none has changed for a while: brokers that have just
    started get their share of the groups one by one."""
    groups = [group_name(number) for number in range(count)]
    found: dict[str, int] = {}
    settled_at = math.inf
    while time.monotonic() < settled_at:
        before = dict(found)
        until_done(lambda: found.update(coordinator_ports(port, groups)))
        if found != before:
            settled_at = time.monotonic() + _SETTLED_SECONDS
        time.sleep(_LOOK_SECONDS)
    return found


def by_broker(coordinators: Mapping[str, int], ports: Sequence[int], connections: int) -> dict[int, int]:
    """How many further connections each broker gets, so that there are `connections` in all, as evenly
    spread as members of groups allow."""
    held = Counter(dict.fromkeys(ports, 0))
    held.update(coordinators.values())
    further = dict.fromkeys(ports, 0)
    for _ in range(connections - len(coordinators)):
        least = min(ports, key=lambda port: held[port] + further[port])
        further[least] += 1
    return further


def hold(groups: Mapping[str, int], topic: bytes, joined: Tally, is_over: Tally) -> None:
    """Join every group, and keep the connections open until it is over. Runs in a process of its own."""
    asyncio.run(_hold(groups, topic, joined, is_over))


async def _hold(groups: Mapping[str, int], topic: bytes, joined: Tally, is_over: Tally) -> None:
    members = [_Member(group, port) for group, port in groups.items()]
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def join(member: _Member) -> None:
        async with at_once:
            await member.connect()
        while True:
            try:
                await member.join()  # without a limit: a new group waits for more members
                async with at_once:
                    await member.commit(topic)
                break
            except NotNow:
                await asyncio.sleep(_LOOK_SECONDS)
                async with at_once:
                    await member.reconnect()
        joined.value += 1

    await asyncio.gather(*map(join, members))
    while not is_over.value:
        await asyncio.sleep(0.05)
    for each in members:
        each.abort()


class _Member:
    def __init__(self, group: str, port: int) -> None:
        self._group = group
        self._port = port
        self._id = ""
        self._generation = -1
        self._requests = RequestEncoder(wire.CLIENT_ID)

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def reconnect(self) -> None:
        """To the coordinator that the group has now."""
        self.abort()
        self._id = ""
        with contextlib.suppress(NotNow, ClientError):  # then it is asked again after the next refusal
            found = await asyncio.to_thread(coordinator_ports, self._port, [self._group])
            self._port = found[self._group]
        await self.connect()

    def abort(self) -> None:
        self._writer.transport.abort()

    async def join(self) -> None:
        answer = await self._ask(self._join_request(), JoinGroupResponse)
        if answer.error_code == _MEMBER_ID_REQUIRED:
            self._id = answer.member_id
            answer = await self._ask(self._join_request(), JoinGroupResponse)
        _check(answer.error_code, "joining a group")
        self._id, self._generation = answer.member_id, answer.generation_id
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._id,
            protocol_type="consumer",
            protocol_name="bench",
            assignments=[SyncGroupRequestAssignment(member_id=self._id, assignment=bytes(100))],
        )
        _check((await self._ask(request, SyncGroupResponse)).error_code, "joining a group")

    async def commit(self, topic: bytes) -> None:
        partitions = [
            OffsetCommitRequestPartition(partition_index=each, committed_offset=each)
            for each in range(PARTITIONS)
        ]
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._id,
            topics=[OffsetCommitRequestTopic(topic_id=topic, partitions=partitions)],
        )
        answer = await self._ask(request, OffsetCommitResponse)
        _check(max(each.error_code for each in answer.topics[0].partitions), "committing offsets")

    def _join_request(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_SESSION_MS,
            member_id=self._id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="bench", metadata=bytes(100))],
        )

    async def _ask(self, request: Message, expected: type[ResponseT]) -> ResponseT:
        chunks, pending = self._requests.encode(request)
        self._writer.writelines(chunks)
        (size,) = SIZE.unpack(await self._reader.readexactly(SIZE.size))
        return pending.response(memoryview(await self._reader.readexactly(size)), expected)


def _check(code: int, doing: str) -> None:
    if code in _NOT_NOW:
        raise NotNow(f"{doing} failed with {code}")
    if code:
        raise ConnectionError(f"{doing} failed with {code}")
