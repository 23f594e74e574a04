"""Queues by the thousand, without a commit for each."""

from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.queues.internal_topics import queue_topic
from posthouse.testing import AsyncBroker


async def add_queues(broker: AsyncBroker, count: int) -> None:
    """Named q00000 and so on."""
    namespace = broker.app.broker.namespaces.get("/")
    logs = [queue_topic(number.to_bytes(16), 1, namespace.scope) for number in range(count)]
    await broker.app.broker._storage.create_topics(logs)
    for number, log in enumerate(logs):
        definition = QueueDefinition(name=f"q{number:05}", durable=False)
        namespace.add_queue(number.to_bytes(16), definition, log)
