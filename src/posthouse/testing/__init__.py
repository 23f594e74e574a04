"""A real broker inside a test: no container, no port to choose, nothing left behind.

    with running_broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.kafka})

    async with AsyncBroker() as broker:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.kafka)

The pytest plugin, which comes with the package, has the same as fixtures: `posthouse` (fresh for each
test) and `posthouse_session`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posthouse.testing.async_broker import AsyncBroker
    from posthouse.testing.thread_broker import ThreadBroker, running_broker

__all__ = ["AsyncBroker", "ThreadBroker", "running_broker"]

_PLACES = {
    "AsyncBroker": "posthouse.testing.async_broker",
    "ThreadBroker": "posthouse.testing.thread_broker",
    "running_broker": "posthouse.testing.thread_broker",
}


def __getattr__(name: str) -> Any:
    """Lazy import: pytest loads the plugin in every run, with or without a broker."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
