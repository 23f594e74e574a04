"""faststream-outbox as its documentation shows it, with larger batches.

`python -m bench.consistency.relays.faststream DATABASE BOOTSTRAP TOPIC`. One worker, because several do not
keep the order of a key.
"""

import asyncio
import sys

from faststream import FastStream
from faststream.kafka import KafkaBroker, KafkaResponse
from faststream_outbox import OutboxBroker, make_outbox_table
from faststream_outbox.annotations import OutboxMessage
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine


async def main(database: str, bootstrap: str, topic: str) -> None:
    engine = create_async_engine(database.replace("postgresql:", "postgresql+asyncpg:", 1))
    outbox = OutboxBroker(engine, outbox_table=make_outbox_table(MetaData(), table_name="outbox"))
    kafka = KafkaBroker(bootstrap, enable_idempotence=True)

    @kafka.publisher(topic)
    @outbox.subscriber("bench", fetch_batch_size=500, terminal_flush_batch_size=100, min_fetch_interval=0.05)
    async def relay(body: bytes, message: OutboxMessage) -> KafkaResponse:
        return KafkaResponse(body, key=message.headers["key"].encode())

    await FastStream(outbox, on_startup=[kafka.start]).run()


asyncio.run(main(*sys.argv[1:]))
