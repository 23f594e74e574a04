"""Producers while answers of the database are lost: others answered 0, where an offset was not known yet."""

import asyncio
import itertools
import time

from tests.cluster.cuttable import cuttable
from tests.cluster.nodes import CALM, node
from tests.protocols.kafka.wire import Wire, batch
from tests.storage.batches import values_in

_PRODUCERS = 4
_CUTS = 6
_SECONDS = 100


async def test_a_producer_is_told_the_offset_of_its_record_or_none(url: str) -> None:
    """The broker keeps its lease, so that the producers keep their connections."""
    async with cuttable(url) as (way, address):
        broker = node(address, "a", times=CALM)
        await broker.start()
        kafka = str(broker.listeners["kafka"])
        told: dict[bytes, int] = {}
        numbers = itertools.count()
        is_over = asyncio.Event()

        async def produce(topic: bytes) -> None:
            async with Wire(kafka) as wire:
                while not is_over.is_set():
                    value = b"%d" % next(numbers)
                    answer = await wire.produce(topic, batch(value, timestamp=time.time_ns() // 1_000_000))
                    if answer.error_code:
                        assert answer.base_offset == -1
                    else:
                        told[value] = answer.base_offset

        async with Wire(kafka) as wire, asyncio.timeout(_SECONDS):
            topic = await wire.create_topic("t")
            async with asyncio.TaskGroup() as producers:  # one that fails ends the test at once
                for _ in range(_PRODUCERS):
                    producers.create_task(produce(topic))
                for _ in range(_CUTS):
                    before = len(told)
                    while len(told) < before + 10:
                        await asyncio.sleep(0.001)
                    way.cut()
                    await asyncio.sleep(0.2)
                    way.mend()
                is_over.set()
            stored: dict[int, bytes | None] = {}
            while found := (await wire.fetch(topic, len(stored))).records:
                stored |= values_in(found)
        assert len(told) >= 10 * _CUTS
        assert len(set(told.values())) == len(told), "no offset twice"
        assert {offset: stored[offset] for offset in told.values()} == {
            offset: value for value, offset in told.items()
        }
        await broker.stop()
