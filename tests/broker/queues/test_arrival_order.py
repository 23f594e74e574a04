"""A queue hears in commit order of messages from publishers and of records from stream producers."""

import asyncio

from posthouse.broker.appending import Produced
from posthouse.records.builder import BatchBuilder
from tests.broker.queues.lazy_rig import until
from tests.broker.queues.rig import PLAIN, running


async def test_a_record_that_is_produced_right_behind_a_publish_does_not_take_its_time_to_live() -> None:
    async with running() as rig:
        queue = await rig.queue("q")
        await rig.publish(b"the topic is there")
        queue.purge()
        topic = rig.broker.topic("q")
        batch = BatchBuilder()
        batch.add_raw(b"q", b"kept", b"\x00", rig.broker.now_ms())

        def produce() -> None:
            rig.broker.append([Produced(topic, 0, memoryview(batch.build()))])

        # The wave of the publish is committed at the end of this turn, the produce comes in the next one.
        publishing = asyncio.create_task(rig.publish(b"short-lived", envelope=PLAIN, expires_in_ms=100))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(produce)
        await publishing
        await until(lambda: queue.lanes[0].end == 3)
        await until(lambda: queue.message_count == 1)
        message = await queue.get()
        assert message is not None and message.value == b"kept"
