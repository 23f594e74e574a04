"""A member of a consumer group whose partitions the broker assigns: reads, commits, goes on from there."""

import asyncio
import uuid
from random import Random

from posthouse.protocols.kafka.codec.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from posthouse.protocols.kafka.errors import ErrorCode
from tests.checker.history import Assign, CommitOffset, CommittedOffset, Outcome, Partition, Poll
from tests.protocols.kafka.wire import Wire
from tests.torture.brokers import Addresses
from tests.torture.recording import Recorder
from tests.torture.stream.links import Link, RefusedWith, Topics, check, group_link
from tests.torture.stream.offsets import EARLIEST, commit, fetch_committed, offset_of
from tests.torture.stream.readers import Fetching
from tests.torture.workloads import RETRY_SECONDS

_NEW = 0
_BEATS_EVERY = 5


class GroupMember:
    """Keeps its place over restarts of the broker, and comes back where it was expelled."""

    expelled = frozenset(
        {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.STALE_MEMBER_EPOCH}
    )
    """Errors after which it has to join again."""

    def __init__(self, recorder: Recorder, topics: Topics, random: Random, group: str) -> None:
        self._recorder = recorder
        self._topics = topics
        self._random = random
        self._group = group
        self._process = recorder.process()
        self._id = str(uuid.UUID(int=random.getrandbits(128), version=4))
        self._epoch = _NEW
        self._fetching = Fetching(topics, {}, committed_only=True)
        self._has_to_say_what_it_owns = True
        self._coordinator: Wire
        """Of the group."""

    async def live(self, addresses: Addresses) -> None:
        async with Link(addresses) as wire, group_link(addresses, self._group) as self._coordinator:
            self._has_to_say_what_it_owns = True
            while True:
                try:
                    await self._work(wire)
                except RefusedWith as refusal:
                    if refusal.code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                        await asyncio.sleep(RETRY_SECONDS)
                    elif refusal.code in self.expelled:
                        self._leave(refusal.code)
                    elif refusal.code == ErrorCode.KAFKA_STORAGE_ERROR:
                        await asyncio.sleep(RETRY_SECONDS)
                    else:
                        raise

    async def _work(self, wire: Wire) -> None:
        await self._beat(wire)
        for _ in range(_BEATS_EVERY):
            if not self._fetching.positions:
                await asyncio.sleep(RETRY_SECONDS)
                return
            await self._poll(wire)
            if self._random.random() < 0.5:
                await self._commit()

    def _leave(self, code: int) -> None:
        self._epoch = _NEW
        self._be_assigned({})
        self._has_to_say_what_it_owns = True

    async def _beat(self, wire: Wire) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self._id, member_epoch=self._epoch
        )
        request.topic_partitions = None
        request.subscribed_topic_names = None
        if self._has_to_say_what_it_owns:
            request.rebalance_timeout_ms = 5000
            request.subscribed_topic_names = list(self._topics.ids)
            request.topic_partitions = self._owned()
        answer = await self._coordinator.ask(request, ConsumerGroupHeartbeatResponse)
        check(answer.error_code, "ConsumerGroupHeartbeat", answer.error_message)
        self._epoch = answer.member_epoch
        self._has_to_say_what_it_owns = False
        if answer.assignment is not None:
            await self._take_over(wire, answer.assignment.topic_partitions)

    def _owned(self) -> list[TopicPartitions]:
        return [
            TopicPartitions(topic_id=self._topics.ids[name], partitions=[index])
            for name, index in self._fetching.positions
        ]

    async def _take_over(self, wire: Wire, given: list[TopicPartitions]) -> None:
        wanted = {(self._topics.name(each.topic_id), index) for each in given for index in each.partitions}
        kept = {place: offset for place, offset in self._fetching.positions.items() if place in wanted}
        if len(kept) == len(self._fetching.positions) and len(kept) == len(wanted):
            return
        # What it keeps it goes on with, and what it gives away is committed no more.
        self._be_assigned(kept)
        self._has_to_say_what_it_owns = True
        if len(kept) < len(wanted):
            self._be_assigned(kept | await self._starts(wire, wanted - set(kept)))

    async def _starts(self, wire: Wire, wanted: set[Partition]) -> dict[Partition, int]:
        invoked = self._recorder.now()
        found = await self._committed()
        now = self._recorder.now()
        for partition in wanted:
            self._recorder.add(
                CommittedOffset(self._process, invoked, now, self._group, partition, found[partition])
            )
        starts = {}
        for partition in wanted:
            offset = found[partition]
            starts[partition] = await offset_of(wire, partition, EARLIEST) if offset is None else offset
        return starts

    async def _committed(self) -> dict[Partition, int | None]:
        return await fetch_committed(self._coordinator, self._topics, self._group, self._id, self._epoch)

    def _be_assigned(self, positions: dict[Partition, int]) -> None:
        self._fetching.positions = positions
        self._recorder.add(Assign(self._process, self._recorder.now(), dict(positions)))

    async def _poll(self, wire: Wire) -> None:
        invoked = self._recorder.now()
        try:
            records = await self._fetching.fetch(wire)
        except RefusedWith as refusal:
            if refusal.code != ErrorCode.OFFSET_OUT_OF_RANGE or not await self._was_overtaken(wire):
                raise
            return
        if records:
            self._recorder.add(Poll(self._process, invoked, self._recorder.now(), True, records))

    async def _was_overtaken(self, wire: Wire) -> bool:
        """Whether records were deleted that it had not read: it goes on with those that are left. A log that
        ends before what was read is another thing."""
        overtaken = {}
        for partition, position in self._fetching.positions.items():
            start = await offset_of(wire, partition, EARLIEST)
            if position < start:
                overtaken[partition] = start
        if overtaken:
            self._be_assigned(self._fetching.positions | overtaken)
        return bool(overtaken)

    async def _commit(self) -> None:
        offsets = dict(self._fetching.positions)
        invoked = self._recorder.now()
        codes: dict[Partition, int] = {}
        try:
            codes = await commit(self._coordinator, self._topics, self._group, offsets, self._id, self._epoch)
        finally:
            now = self._recorder.now()
            for partition, offset in offsets.items():
                outcome = _outcome(codes.get(partition))
                self._recorder.add(
                    CommitOffset(self._process, invoked, now, self._group, partition, offset, outcome)
                )
        for code in codes.values():
            check(code, "OffsetCommit")


def _outcome(code: int | None) -> Outcome:
    if code is None or code == ErrorCode.KAFKA_STORAGE_ERROR:
        return Outcome.UNKNOWN
    return Outcome.FAILED if code else Outcome.OK
