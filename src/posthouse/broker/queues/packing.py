"""Messages on their way into one batch."""

from posthouse.broker.appending import Produced
from posthouse.model.topics import Topic
from posthouse.records.builder import BatchBuilder
from posthouse.records.references import NEVER
from posthouse.storage.operations import Run

_RECORD_OVERHEAD = 32
"""More than the lengths and deltas of one record take."""


class Packing:
    """One batch for one partition, and the runs that refer to its records."""

    __slots__ = ("_limit", "_runs", "builder", "partition", "topic")

    def __init__(self, topic: Topic, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.builder = BatchBuilder()
        self._limit = topic.config.max_message_bytes
        self._runs: list[Run] = []

    def has_room(self, size: int) -> bool:
        """A message that is too large by itself is refused when the batch is."""
        builder = self.builder
        return not builder.count or builder.size_estimate + size + _RECORD_OVERHEAD <= self._limit

    def new_run(self, expires_ms: int = NEVER) -> Run:
        """Of the messages that are added from now on; whoever adds them counts them."""
        run = Run(self.topic.partition(self.partition), self.builder.count, 0, 0, expires_ms)
        self._runs.append(run)
        return run

    def produced(self) -> Produced:
        return Produced(self.topic, self.partition, memoryview(self.builder.build()), self._runs)
