"""Readers of streams that remember what they were given."""

from posthouse.broker.queues.stream_queue import StreamQueue
from posthouse.broker.queues.stream_reading import StreamReading
from tests.broker.queues.rig import Taker


class Reader(Taker):
    """Subscribed from an offset on."""

    def __init__(self, stream: StreamQueue, start: int = 0, credit: int = 1_000_000) -> None:
        super().__init__(credit)
        self.reading: StreamReading = stream.reading(start)
        self.reading.subscribe(self)

    @property
    def offsets(self) -> list[int]:
        return [message.position for message in self.taken]

    def ack(self, count: int) -> None:
        """Credit for as many."""
        self._credit += count
        self.reading.credit_raised()

    def leave(self) -> None:
        self.reading.unsubscribe(self)
