"""Producers of all kinds, and groups of consumers, by RocketMQ's gRPC protocol."""

import asyncio
import time
from collections.abc import Sequence
from random import Random
from typing import Final

from posthouse.protocols.kafka.codec.generated import incremental_alter_configs as alter
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import MessageQueue, Resource
from posthouse.protocols.rocketmq.grpc.messages.enums import QueryOffsetPolicy
from posthouse.protocols.rocketmq.grpc.messages.service import (
    PullMessageRequest,
    PullMessageResponse,
    QueryOffsetRequest,
    QueryOffsetResponse,
)
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration
from tests.checker.history import (
    DeadLetters,
    Drained,
    End,
    FinalRead,
    Outcome,
    Partition,
    Publish,
    Send,
    Takeover,
)
from tests.protocols.kafka.handlers.share_wire import lag
from tests.torture.brokers import Addresses
from tests.torture.recording import PATIENCE, NoProgress, Recorder
from tests.torture.rocket_grpc.consumers import Consumer, Group
from tests.torture.rocket_grpc.halves import HALVES, HalfSender, Halves
from tests.torture.rocket_grpc.link import GrpcLink, check
from tests.torture.rocket_grpc.senders import JOBS, LANES, NOWHERE, OrderedSender, Sender
from tests.torture.stream.links import Link, decode_value, group_link
from tests.torture.stream.links import check as check_kafka
from tests.torture.stream.workload import CONFIG
from tests.torture.workloads import Client

_QUEUES: Final = 2
_USUAL_DELIVERIES: Final = 17
GROUPS: Final = (
    Group(name="grpc-workers", topic=JOBS, queues=_QUEUES, most_deliveries=5),
    Group(name="grpc-settlers", topic=HALVES, queues=_QUEUES, most_deliveries=_USUAL_DELIVERIES),
    Group(
        name="grpc-ordered", topic=LANES, queues=_QUEUES, most_deliveries=_USUAL_DELIVERIES, is_ordered=True
    ),
)
_GROUP_RESOURCE: Final = 32
_LOOK_SECONDS: Final = 0.1
_AT_ONCE: Final = Duration.from_ms(0)


class GrpcWorkload:
    most_promises = 150

    def __init__(self, recorder: Recorder, random: Random, *, delays: bool = True) -> None:
        """Without `delays` no message is delayed: the clock jumps, and nobody knows when it would come."""
        self._recorder = recorder
        self._random = random
        self._senders = [Sender(recorder, random, delays=delays) for _ in range(2)]
        self._halves = Halves()
        self._half_senders = [HalfSender(recorder, random, self._halves) for _ in range(2)]
        ordered_senders = [OrderedSender(recorder, random) for _ in range(2)]
        consumers = [
            Consumer(recorder, random, group, is_push=is_push)
            for group in GROUPS
            for is_push in (False, True, group.is_ordered)
        ]
        self.clients: Sequence[Client] = [
            *self._senders,
            *ordered_senders,
            *self._half_senders,
            *consumers,
        ]

    async def prepare(self, addresses: Addresses) -> None:
        async with Link(addresses) as wire:
            for topic in (JOBS, LANES, HALVES):
                await wire.create_topic(topic, _QUEUES, **CONFIG)
            for group in GROUPS:
                await wire.create_topic(f".DLQ.{group.name}", 1, **CONFIG)
                if group.is_ordered:
                    await _configure(wire, group.name, "rocketmq.fifo.enable", "true")
                if group.most_deliveries != _USUAL_DELIVERIES:
                    limit = str(group.most_deliveries)
                    await _configure(wire, group.name, "share.delivery.count.limit", limit)

    async def finish(self, addresses: Addresses) -> None:
        now = self._recorder.now()
        # The last broker is a new one: which messages were delivered how often may be forgotten.
        self._recorder.add(Takeover(now, now))
        for each in self._half_senders:
            await each.finish(addresses)
        async with GrpcLink(addresses, "last-reader") as link:
            reads = await self._final_reads(link)
            self._note_places(reads)
            self._note_publishes()
            for group in GROUPS:
                await self._drain(addresses, group)
                dead = await read_to_the_end(link, (f"%DLQ%{group.name}", 0))
                values = [value for _, value in dead.records]
                self._recorder.add(DeadLetters(group.queue, group.most_deliveries, values))

    async def _final_reads(self, link: GrpcLink) -> list[FinalRead]:
        wanted = set().union(*(each.delayed for each in self._senders))
        await asyncio.sleep(max(0.0, max(each.latest_due for each in self._senders) - time.monotonic()))
        deadline = time.monotonic() + PATIENCE
        partitions = [(topic, queue) for topic in (JOBS, LANES, HALVES) for queue in range(_QUEUES)]
        while True:
            reads = [await read_to_the_end(link, each) for each in partitions]
            seen = {value for read in reads for _, value in read.records}
            if wanted <= seen or time.monotonic() > deadline:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        for read in reads:
            self._recorder.add(read)  # half messages that were rolled back are in no log
        return reads

    def _note_places(self, reads: Sequence[FinalRead]) -> None:
        """Producers are not told in which queue a message is. One that is in none counts as lost by the
        first."""
        places = {value: read.partition for read in reads for _, value in read.records}
        for send in self._recorder.history:
            if isinstance(send, Send) and send.partition[1] == NOWHERE:
                send.partition = places.get(send.value, (send.partition[0], 0))

    def _note_publishes(self) -> None:
        """Each as if it had a publisher of its own: queues have no order among them. A half message is
        published by its commit."""
        ends: dict[int, list[End]] = {}
        for each in self._recorder.history:
            if isinstance(each, End):
                ends.setdefault(each.transaction, []).append(each)
        queues = {group.topic: group.queue for group in GROUPS}
        for send in [each for each in self._recorder.history if isinstance(each, Send)]:
            outcome = send.outcome
            if send.transaction is not None:
                outcome = _outcome(ends.get(send.transaction, []))
            queue = queues[send.partition[0]]
            process = self._recorder.process()
            self._recorder.add(Publish(process, send.invoked, send.completed, queue, send.value, outcome))

    async def _drain(self, addresses: Addresses, group: Group) -> None:
        last = Consumer(self._recorder, self._random, group, is_last=True)
        deadline = time.monotonic() + PATIENCE
        async with (
            GrpcLink(addresses, "last-consumer") as link,
            group_link(addresses, group.name) as coordinator,
        ):
            await last.work(link)
            while any(left for _, left in (await lag(coordinator, group.name)).values()):
                if time.monotonic() > deadline:
                    raise NoProgress(f"the group {group.name} is not drained after {PATIENCE:g} s")
                await last.work(link)
        self._recorder.add(Drained(group.queue, last.received))


async def _configure(wire: Link, group: str, name: str, value: str) -> None:
    config = alter.AlterableConfig(name=name, config_operation=0, value=value)
    resource = alter.AlterConfigsResource(
        resource_type=_GROUP_RESOURCE, resource_name=group, configs=[config]
    )
    request = alter.IncrementalAlterConfigsRequest(resources=[resource])
    [answer] = (await wire.ask(request, alter.IncrementalAlterConfigsResponse)).responses
    check_kafka(answer.error_code, "IncrementalAlterConfigs", answer.error_message)


def _outcome(ends: Sequence[End]) -> Outcome:
    if any(each.commit and each.outcome is Outcome.OK for each in ends):
        return Outcome.OK
    if any(each.commit for each in ends):
        return Outcome.UNKNOWN
    return Outcome.FAILED


async def pulled(link: GrpcLink, partition: Partition, offset: int) -> tuple[list[tuple[int, int]], int]:
    """Offset and value of each message, and the offset to go on from."""
    topic, queue = partition
    request = PullMessageRequest(
        group=Resource(name="grpc-readers"),
        message_queue=MessageQueue(topic=Resource(name=topic), id=queue),
        offset=offset,
        batch_size=200,
        long_polling_timeout=_AT_ONCE,
    )
    found: list[tuple[int, int]] = []
    for each in await link.stream(request, PullMessageResponse):
        if each.status is not None:
            check("PullMessage", each.status, Code.OK, Code.MESSAGE_NOT_FOUND)
        if each.message is not None:
            system = each.message.system_properties
            assert system is not None and system.queue_offset is not None
            found.append((system.queue_offset, decode_value(each.message.body)))
        if each.next_offset is not None:
            offset = each.next_offset
    return found, offset


async def read_to_the_end(link: GrpcLink, partition: Partition) -> FinalRead:
    topic, queue = partition
    request = QueryOffsetRequest(
        message_queue=MessageQueue(topic=Resource(name=topic), id=queue),
        query_offset_policy=QueryOffsetPolicy.END,
    )
    response = await link.ask(request, QueryOffsetResponse)
    check("QueryOffset", response.status)
    records: list[tuple[int, int]] = []
    offset = 0
    while offset < response.offset:
        found, offset = await pulled(link, partition, offset)
        records += found
    return FinalRead(partition, True, 0, response.offset, records)
