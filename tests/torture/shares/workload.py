"""A producer and members of a share group."""

import time
from collections.abc import Sequence
from functools import partial
from random import Random

from tests.checker.history import Drained, Publish, Send
from tests.protocols.kafka.handlers.share_wire import lag, set_config
from tests.torture.brokers import Addresses
from tests.torture.recording import PATIENCE, NoProgress, Recorder
from tests.torture.shares.members import GROUP, QUEUE, TOPIC, ShareMember
from tests.torture.stream.links import Link, Topics, group_link, insisted
from tests.torture.stream.producers import PlainProducer
from tests.torture.workloads import Client

_PARTITIONS = 2
_CONFIG = {
    "auto_offset_reset": "earliest",
    "delivery_count_limit": "1000",
    "record_lock_duration_ms": "2000",
    "session_timeout_ms": "3000",
    "heartbeat_interval_ms": "100",
}


class ShareWorkload:
    most_promises = 60

    def __init__(self, recorder: Recorder, random: Random) -> None:
        self._recorder = recorder
        self._random = random
        self._topics = Topics({}, {TOPIC: _PARTITIONS})
        self._producer = PlainProducer(recorder, self._topics, random)
        self.clients: Sequence[Client] = [
            self._producer,
            *(ShareMember(recorder, self._topics, random) for _ in range(3)),
        ]

    async def prepare(self, addresses: Addresses) -> None:
        async with Link(addresses) as wire:
            self._topics.ids[TOPIC] = await wire.create_topic(TOPIC, _PARTITIONS)
            await set_config(wire, GROUP, **_CONFIG)

    async def finish(self, addresses: Addresses) -> None:
        self._producer.close()
        self._note_publishes()
        last = ShareMember(self._recorder, self._topics, self._random, is_last=True)
        await insisted(partial(self._drain, addresses, last))
        self._recorder.add(Drained(QUEUE, last.delivered))

    def _note_publishes(self) -> None:
        """Each as if it had a publisher of its own: partitions have no order among them."""
        sends = [each for each in self._recorder.history if isinstance(each, Send)]
        for send in sends:
            if send.partition[0] == TOPIC:
                process = self._recorder.process()
                self._recorder.add(
                    Publish(process, send.invoked, send.completed, QUEUE, send.value, send.outcome)
                )

    async def _drain(self, addresses: Addresses, last: ShareMember) -> None:
        deadline = time.monotonic() + PATIENCE
        async with Link(addresses) as wire, group_link(addresses, GROUP) as coordinator:
            session = last.join(wire)
            await last.work(coordinator, session)
            while any(left for _, left in (await lag(coordinator, GROUP)).values()):
                if time.monotonic() > deadline:
                    raise NoProgress(f"the share group is not drained after {PATIENCE:g} s")
                await last.work(coordinator, session)
