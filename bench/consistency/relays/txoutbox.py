"""txoutbox with aiokafka and LISTEN/NOTIFY, as its documentation shows it, and with batches as large as ours.

`python -m bench.consistency.relays.txoutbox DATABASE BOOTSTRAP TOPIC`
"""

import asyncio
import sys

import asyncpg
from aiokafka import AIOKafkaProducer
from txoutbox import OutboxMessage, Relay, RelayConfig
from txoutbox.adapters.postgres import PostgresStorage


async def main(database: str, bootstrap: str, topic: str) -> None:
    pool = await asyncpg.create_pool(database)
    storage = PostgresStorage(pool, notify_channel="outbox", delete_on_ack=True)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    await producer.start()

    async def publish(message: OutboxMessage) -> None:
        key = None if message.key is None else message.key.encode()
        await producer.send_and_wait(message.topic, message.payload, key=key)

    relay = Relay(storage, publish, config=RelayConfig(batch_size=500, concurrency=100))
    listener = await storage.listen(relay.wake)
    try:
        await relay.run(handle_signals=True)
    finally:
        await listener.close()
        await producer.stop()


asyncio.run(main(*sys.argv[1:]))
