"""Members of a share group: they accept most records, release some, and are told what became of it."""

import asyncio
import uuid
from random import Random

from posthouse.protocols.kafka.codec.generated.share_fetch import PartitionData
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.records.batch import iter_headers
from posthouse.records.record import iter_records
from tests.checker.history import Ack, Deliver, Outcome, Subscribe
from tests.protocols.kafka.handlers.share_wire import ACCEPT, RELEASE, Got, Member, Said, beat
from tests.torture.brokers import Addresses
from tests.torture.recording import Recorder
from tests.torture.stream.links import Link, RefusedWith, Topics, check, decode_value, group_link
from tests.torture.workloads import RETRY_SECONDS

TOPIC = "jobs"
GROUP = "workers"
QUEUE = "share group of jobs"
"""What the history calls it: a share group promises what a queue does, but for the order."""
_NEW = 0
_WAIT_MS = 50
_MOST_RECORDS = 50
_BEATS_EVERY = 5
_NO_SESSION = {
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
}
_EXPELLED = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}


class ShareMember:
    """The same member over all connections; each connection has a session of its own."""

    def __init__(self, recorder: Recorder, topics: Topics, random: Random, *, is_last: bool = False) -> None:
        """The last one accepts everything; that it did so is not in the history, which says what was left."""
        self._recorder = recorder
        self._topics = topics
        self._random = random
        self._is_last = is_last
        self._process = recorder.process()
        self._id = str(uuid.UUID(int=random.getrandbits(128), version=4))
        self._epoch = _NEW
        self._assigned: set[int] = set()
        self._fetched: set[int] = set()
        """The partitions of the session."""
        self.delivered: list[int] = []

    async def live(self, addresses: Addresses) -> None:
        async with Link(addresses) as wire, group_link(addresses, GROUP) as coordinator:
            session = self.join(wire)
            while True:
                await self.work(coordinator, session)

    def join(self, wire: Link) -> Member:
        self._recorder.add(Subscribe(self._process, self._recorder.now(), QUEUE))
        self._epoch = _NEW
        return self._session(wire)

    def _session(self, wire: Link) -> Member:
        self._fetched = set()
        return Member(wire, self._topics.ids[TOPIC], self._id, GROUP)

    async def work(self, coordinator: Link, session: Member) -> None:
        """Report once, and fetch some times. Begins anew where the broker has forgotten the member."""
        try:
            await self._beat(coordinator)
            for _ in range(_BEATS_EVERY):
                if self._assigned:
                    await self._fetch(session)
                else:
                    await asyncio.sleep(RETRY_SECONDS)
        except RefusedWith as refusal:
            if refusal.code in _EXPELLED:
                self._epoch = _NEW
            elif refusal.code in _NO_SESSION:
                session.epoch = 0
                self._fetched = set()
            else:
                raise
            await asyncio.sleep(RETRY_SECONDS)

    async def _beat(self, coordinator: Link) -> None:
        topics = [TOPIC] if self._epoch == _NEW else None
        answer = await beat(coordinator, self._id, self._epoch, group=GROUP, subscribed_topic_names=topics)
        check(answer.error_code, "ShareGroupHeartbeat", answer.error_message)
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._assigned = {
                index for each in answer.assignment.topic_partitions for index in each.partitions
            }

    async def _fetch(self, session: Member) -> None:
        wanted = self._assigned - self._fetched
        answer = await session.ask_fetch(
            *wanted,
            forget=self._fetched - self._assigned,
            max_wait_ms=_WAIT_MS,
            max_records=_MOST_RECORDS,
        )
        check(answer.error_code, "ShareFetch", answer.error_message)
        self._fetched = set(self._assigned)
        said: Said = {}
        values: dict[int, list[int]] = {}
        for topic in answer.responses:
            for data in topic.partitions:
                check(data.error_code, "ShareFetch", data.error_message)
                self._take(data, said, values)
        if said:
            await self._acknowledge(session, said, values)

    def _take(self, data: PartitionData, said: Said, accepted: dict[int, list[int]]) -> None:
        """Note what was delivered, and decide what to say of it."""
        found = _values(data)
        for first, last, count in Got(data).runs:
            for offset in range(first, last + 1):
                if offset not in found:
                    continue  # a control record, or none
                value = found[offset]
                now = self._recorder.now()
                # Leases are not stored: the last broker cannot know which records were delivered before.
                redelivered = count > 1 or self._is_last
                self._recorder.add(Deliver(self._process, now, QUEUE, value, redelivered))
                self.delivered.append(value)
                release = not self._is_last and count == 1 and self._random.random() < 0.1
                said.setdefault(data.partition_index, []).append(
                    (offset, offset, [RELEASE if release else ACCEPT])
                )
                if not release and not self._is_last:
                    accepted.setdefault(data.partition_index, []).append(value)

    async def _acknowledge(self, session: Member, said: Said, accepted: dict[int, list[int]]) -> None:
        invoked = self._recorder.now()
        codes: dict[int, int] = {}
        try:
            answer = await session.ask_acknowledge(said)
            check(answer.error_code, "ShareAcknowledge", answer.error_message)
            codes = {
                each.partition_index: each.error_code
                for topic in answer.responses
                for each in topic.partitions
            }
        finally:
            now = self._recorder.now()
            for partition, values in accepted.items():
                # After an error the record may be settled or not, and may belong to another member.
                outcome = Outcome.OK if codes.get(partition) == 0 else Outcome.UNKNOWN
                for value in values:
                    self._recorder.add(Ack(self._process, invoked, now, QUEUE, value, outcome))
        self._recorder.moved()


def _values(data: PartitionData) -> dict[int, int]:
    """By offset."""
    records = bytes(data.records or b"")
    return {
        record.offset: decode_value(record.value or b"")
        for position, header in iter_headers(records)
        if not header.is_control
        for record in iter_records(memoryview(records)[position : position + header.length])
    }
