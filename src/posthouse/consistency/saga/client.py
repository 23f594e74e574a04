"""Starts sagas, and answers steps that wait."""

from typing import Any

import msgspec

from posthouse.client.client import Client
from posthouse.client.closable import Closable
from posthouse.client.errors import TopicNotFound
from posthouse.client.security import OPEN, Security
from posthouse.consistency.errors import BadMessage
from posthouse.consistency.saga.events import Event, Failure, Reply, Start
from posthouse.consistency.saga.topics import PARTITIONS, create_topics, events_topic

_LONGEST_ID = 200


class SagaClient(Closable):
    """Belongs to one thread. What returns is on disk. Raises BadMessage and ClientError."""

    def __init__(
        self, name: str, *, kafka: str, security: Security = OPEN, partitions: int = PARTITIONS
    ) -> None:
        """`partitions` is for topics that are not there yet."""
        self._name = name
        self._partitions = partitions
        self._client = Client(kafka, security=security)

    def close(self) -> None:
        self._client.close()

    def start(self, id: str, input: Any = None) -> None:
        """A saga of an id is started once: again is fine."""
        try:
            self._client.topic(events_topic(self._name))
        except TopicNotFound:
            create_topics(self._client, self._name, self._partitions)
        self._send(id, Start(input))

    def reply(self, id: str, step: str, result: Any = None) -> None:
        """The step is done. No-op if it was not called yet, or is over."""
        self._send(id, Reply(step, result))

    def fail(self, id: str, step: str, reason: str) -> None:
        """The step has not been done, and will not be: those before it are taken back."""
        self._send(id, Failure(step, reason))

    def _send(self, id: str, event: Event) -> None:
        if not 0 < len(id) <= _LONGEST_ID:
            raise BadMessage(f"the id of a saga has 1 to {_LONGEST_ID} characters, not {len(id)}")
        try:
            key, value = id.encode(), msgspec.json.encode(event)
        except (TypeError, ValueError) as error:
            raise BadMessage(f"what a saga gets has to be possible in JSON: {error}") from None
        with self._client.producer(events_topic(self._name)) as producer:
            producer.send(value, key)
