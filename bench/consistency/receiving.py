"""The consumer at the other end: it notes when each message came, and how often."""

import threading
import time
from collections import Counter
from types import TracebackType
from typing import Final, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

_POLL_SECONDS: Final = 0.1


class Overdue(Exception):
    """Messages that do not come."""


class Receiver:
    """`read_committed`, from the beginning of all partitions. Values begin with KEY NUMBER and a blank."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(partitions)])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._stop = threading.Event()
        self._arrived = threading.Condition()
        self._last: Counter[str] = Counter()
        self.times: dict[tuple[str, int], float] = {}
        self.repeated = 0
        self.out_of_order = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def wait(self, count: int, seconds: float) -> float:
        """Until so many different messages have come; returns the time of the last one. Raises Overdue."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self.times) >= count, seconds):
                raise Overdue(f"only {len(self.times)} of {count} messages came in {seconds:g} s")
            return max(self.times.values())

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(_POLL_SECONDS)
            if message is None or message.error() is not None:
                continue
            now = time.perf_counter()
            key, number, _ = (message.value() or b"").split(b" ", 2)
            self.note(key.decode(), int(number), now)

    def note(self, key: str, number: int, now: float) -> None:
        with self._arrived:
            if (key, number) in self.times:
                self.repeated += 1
                return
            self.times[key, number] = now
            self.out_of_order += number < self._last[key]
            self._last[key] = max(number, self._last[key])
            self._arrived.notify_all()
