"""A producer and a consumer that know only the cluster's addresses, and remember what they were told."""

import threading
import time
from itertools import pairwise
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, Producer

TOPIC = "numbers"
PER_SECOND = 100
_TICK_SECONDS = 0.02


class Traffic:
    """`with Traffic(addresses) as traffic:` numbers are sent, and read by a group, until the end."""

    def __init__(self, bootstrap: str) -> None:
        quiet = {"bootstrap.servers": bootstrap, "log_level": 2}
        self._producer = Producer(
            quiet | {"enable.idempotence": True, "delivery.timeout.ms": 120_000, "linger.ms": 5}
        )
        self._consumer = Consumer(
            quiet | {"group.id": "readers", "auto.offset.reset": "earliest", "session.timeout.ms": 10_000}
        )
        self._is_closed = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._send, self._read)]
        self.sent = 0
        self.acknowledged: dict[int, float] = {}
        """When, by number."""
        self.read: list[int] = []
        self.failures: list[str] = []

    def _send(self) -> None:
        begun = time.monotonic()
        while not self._is_closed.is_set():
            due = int((time.monotonic() - begun) * PER_SECOND)
            while self.sent < due:
                self._producer.produce(TOPIC, b"%d" % self.sent, on_delivery=self._delivered)
                self.sent += 1
            self._producer.poll(_TICK_SECONDS)
        self._producer.flush(60)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error.str())
        else:
            self.acknowledged[int(message.value() or b"")] = time.monotonic()

    def _read(self) -> None:
        self._consumer.subscribe([TOPIC])
        # Until everything that was acknowledged is read.
        while not (self._is_closed.is_set() and self.lost == 0 and not self._threads[0].is_alive()):
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                self.read.append(int(message.value() or b""))
        self._consumer.close()

    @property
    def lost(self) -> int:
        """Acknowledged and not read, yet."""
        return len(self.acknowledged.keys() - set(self.read))

    @property
    def repeated(self) -> int:
        return len(self.read) - len(set(self.read))

    def longest_pause(self) -> float:
        """Between two acknowledgements."""
        times = sorted(self.acknowledged.values())
        return max((after - before for before, after in pairwise(times)), default=0.0)

    def wait_for(self, count: int, seconds: float) -> bool:
        """Whether that many more were acknowledged in time."""
        wanted, deadline = len(self.acknowledged) + count, time.monotonic() + seconds
        while len(self.acknowledged) < wanted and time.monotonic() < deadline:
            time.sleep(_TICK_SECONDS)
        return len(self.acknowledged) >= wanted

    def finish(self, seconds: float) -> None:
        """Send no more, and read the rest."""
        self._is_closed.set()
        for each in self._threads:
            each.join(seconds)

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_closed.set()
