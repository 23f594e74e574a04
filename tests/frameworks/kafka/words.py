"""Applications that count words, as processes: what they are given, and what they have written."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

ROOT = Path(__file__).parents[3]
SECONDS = 120


@contextmanager
def application(
    command: Sequence[object], environment: Mapping[str, str], log: Path, *, killed: bool
) -> Iterator[None]:
    with (
        log.open("w") as output,
        subprocess.Popen(
            [str(each) for each in command], cwd=ROOT, env=environment, stdout=output, stderr=output
        ) as process,
    ):
        try:
            yield
            assert process.poll() is None, log.read_text()
        finally:
            process.send_signal(signal.SIGKILL if killed else signal.SIGTERM)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()


class Results:
    """What the application has written to one of its topics."""

    def __init__(self, kafka: str, topic: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": kafka, "group.id": f"{topic}-test", "auto.offset.reset": "earliest"}
            | {"topic.metadata.refresh.interval.ms": 500, "allow.auto.create.topics": True}
        )
        self._consumer.subscribe([topic])
        self.values: list[Any] = []

    def until(self, value: Any) -> list[Any]:
        assert self.comes(value, SECONDS), f"{value} is not among {self.values}; see the worker's log"
        return self.values

    def comes(self, value: Any, seconds: float) -> bool:
        """Whether the value is written in time."""
        deadline = time.monotonic() + seconds
        while value not in self.values and time.monotonic() < deadline:
            message = self._consumer.poll(0.5)
            if message is not None and message.error() is None:
                self.values.append(json.loads(message.value() or b"null"))
        return value in self.values

    def close(self) -> None:
        self._consumer.close()


def produce(kafka: str, topic: str, *texts: str) -> None:
    producer = Producer({"bootstrap.servers": kafka})
    for text in texts:
        producer.produce(topic, json.dumps({"text": text}).encode())
    assert producer.flush(30) == 0
