"""What a database and the log have of the numbers that a test has written to both."""

from collections.abc import Callable
from typing import Any

import psycopg

from posthouse.client import Client
from posthouse.consistency.two_phase import Step, TwoPhase

Rows = list[int]
Connection = psycopg.Connection[Any]


class Both:
    """What the database and the log have; `id` is the transactional id and the topic."""

    def __init__(self, url: str, kafka: str, id: str) -> None:
        self.url = url
        self.kafka = kafka
        self.id = id

    def opened(
        self,
        on_step: Callable[[Step], object] = lambda step: None,
        connect: Callable[[], Connection] | None = None,
        **options: Any,
    ) -> TwoPhase:
        def step(step: Step) -> None:
            on_step(step)

        return TwoPhase(
            self.kafka, self.id, connect or (lambda: psycopg.connect(self.url)), on_step=step, **options
        )

    def write(self, two_phase: TwoPhase, *numbers: int) -> None:
        with two_phase.transaction() as transaction:
            for number in numbers:
                transaction.connection.execute("INSERT INTO numbers VALUES (%s)", [number])
                transaction.send(self.id, b"%d" % number, key=b"%d" % number)

    @property
    def database(self) -> Rows:
        with psycopg.connect(self.url) as connection:
            return [n for (n,) in connection.execute("SELECT number FROM numbers ORDER BY number")]

    @property
    def log(self) -> Rows:
        with Client(self.kafka) as client:
            client.topic(self.id, create=True)
            return sorted(int(message.value or b"") for message in client.messages(self.id))

    def check(self, *numbers: int) -> None:
        assert (self.database, self.log) == (list(numbers), list(numbers))


class At:
    """Does something once, at a step."""

    def __init__(self, step: Step, act: Callable[[], object]) -> None:
        self._step = step
        self._act: Callable[[], object] | None = act

    def __call__(self, step: Step) -> None:
        if step is self._step and self._act is not None:
            act, self._act = self._act, None
            act()


def fail() -> None:
    raise RuntimeError("no")
