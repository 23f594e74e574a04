"""Producers, transactions, readers and a group on a few partitions."""

from collections.abc import Sequence
from functools import partial
from random import Random

from tests.checker.history import CommittedOffset, FinalRead, Partition
from tests.protocols.kafka.wire import Wire
from tests.torture.brokers import Addresses
from tests.torture.recording import Recorder
from tests.torture.stream.classic import ClassicMember
from tests.torture.stream.links import Link, Topics, group_link, insisted
from tests.torture.stream.members import GroupMember
from tests.torture.stream.offsets import EARLIEST, LATEST, fetch_committed, offset_of
from tests.torture.stream.processing import OUTPUT, Processor
from tests.torture.stream.producers import IdempotentProducer, PlainProducer
from tests.torture.stream.readers import Fetching, Follower
from tests.torture.stream.transactions import TransactionalProducer
from tests.torture.stream.trimming import Trimmer
from tests.torture.workloads import Client

PARTITIONS = {"orders": 3, "payments": 2}
GROUP = "readers"
CLASSIC_GROUP = "classic readers"
_PRODUCERS = ("first", "second")
_PROCESSOR = "processor"
TRANSACTIONAL_IDS = (*_PRODUCERS, _PROCESSOR)
CONFIG = {"internal_segment_bytes": "16384", "retention_ms": "-1", "retention_bytes": "-1"}


class StreamWorkload:
    most_promises = 150

    def __init__(
        self,
        recorder: Recorder,
        random: Random,
        *,
        careless: bool = False,
        is_full: bool = False,
        **config: str,
    ) -> None:
        """`careless` producers send again what may be there; `is_full` adds a group of the older protocol,
        and a processor; `config` is of the topics, with underscores."""
        self._recorder = recorder
        self._random = random
        self._config = CONFIG | config
        self._careless = careless
        self._groups = [GROUP, CLASSIC_GROUP] if is_full else [GROUP]
        self._processor: Processor | None = None
        self._is_full = is_full
        self._topics = Topics({}, PARTITIONS | {OUTPUT[0]: 1} if is_full else PARTITIONS)
        self._transactional: list[TransactionalProducer] = []
        self._producers: list[IdempotentProducer | PlainProducer] = []
        self._readers: list[Follower | GroupMember] = []

    async def prepare(self, addresses: Addresses) -> None:
        async with Link(addresses) as wire:
            for name, partitions in self._topics.partitions.items():
                self._topics.ids[name] = await wire.create_topic(name, partitions, **self._config)
        about = (self._recorder, self._topics, self._random)
        self._producers = [
            IdempotentProducer(*about),
            IdempotentProducer(*about),
            PlainProducer(*about, sends_again=self._careless),
        ]
        self._transactional = [TransactionalProducer(*about, name) for name in _PRODUCERS]
        self._readers = [
            Follower(*about, committed_only=False),
            Follower(*about, committed_only=True),
            GroupMember(*about, GROUP),
            GroupMember(*about, GROUP),
        ]
        if self._is_full:
            self._processor = Processor(*about, _PROCESSOR)
            self._transactional.append(self._processor)
            self._readers += [ClassicMember(*about, CLASSIC_GROUP) for _ in range(2)]

    @property
    def clients(self) -> Sequence[Client]:
        return [*self._producers, *self._transactional, *self._readers, Trimmer(self._random)]

    async def finish(self, addresses: Addresses) -> None:
        for producer in self._producers:
            producer.close()
        for transactional in self._transactional:
            await insisted(partial(transactional.settle, addresses))
        for group in self._groups:
            await insisted(partial(self._note_progress, addresses, group))
        async with Link(addresses) as wire:
            for partition in self._topics.all():
                for committed_only in (False, True):
                    self._recorder.add(await self._read(wire, partition, committed_only=committed_only))
        if self._processor is not None:
            self._processor.check(self._recorder.history)

    async def _note_progress(self, addresses: Addresses, group: str) -> None:
        async with group_link(addresses, group) as coordinator:
            process, invoked = self._recorder.process(), self._recorder.now()
            found = await fetch_committed(coordinator, self._topics, group)
        now = self._recorder.now()
        for partition, offset in found.items():
            self._recorder.add(CommittedOffset(process, invoked, now, group, partition, offset))

    async def _read(self, wire: Wire, partition: Partition, *, committed_only: bool) -> FinalRead:
        start = await offset_of(wire, partition, EARLIEST, committed_only=committed_only)
        end = await offset_of(wire, partition, LATEST, committed_only=committed_only)
        fetching = Fetching(self._topics, {partition: start}, committed_only=committed_only)
        records: list[tuple[int, int]] = []
        while fetching.positions[partition] < end:
            before = fetching.positions[partition]
            records += [(offset, value) for _, offset, value in await fetching.fetch(wire)]
            if fetching.positions[partition] == before:
                break  # damage: what should be there does not come
        return FinalRead(partition, committed_only, start, end, records)
