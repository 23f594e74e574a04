"""A runner to be killed: `python -m tests.consistency.saga.saga_process KAFKA ADMIN DATABASE SEED`.

Its steps note what they did in SQLite, each once for its idempotency key, as real services do. They fail,
wait and are slow at random, but for one saga always in the same way.
"""

import random
import sqlite3
import sys
import time
from collections.abc import Callable

from posthouse.consistency.saga import WAIT, Saga, SagaRunner, StepCall, StepFailed

STEPS = ("reserve", "pay", "ship")
PARTITIONS = 2


def outcome(saga: str, step: str) -> str:
    """What the step of this saga does."""
    kinds = ["done"] * 7 + ["refused", "broken", "wait"]
    return random.Random(f"{saga} {step}").choice(kinds)


def expected(saga: str) -> str:
    failing = {"refused", "broken"}
    return "compensated" if any(outcome(saga, step) in failing for step in STEPS) else "completed"


def saga_of(path: str) -> Saga:
    def note(call: StepCall, what: str) -> None:
        with sqlite3.connect(path, timeout=60) as connection:
            connection.execute("INSERT INTO calls VALUES (?, ?, ?)", [call.id, call.step, what])
            connection.execute("INSERT OR IGNORE INTO effects VALUES (?, ?, ?)", [call.key, call.id, what])

    def act(call: StepCall) -> object:
        kind = outcome(call.id, call.step)
        if kind == "refused":
            raise StepFailed("no")
        note(call, "act")
        time.sleep(0.005)
        if kind == "broken":
            raise ValueError("after it was done")
        call.send("told", f"{call.id} {call.step}", key=call.id)
        if kind == "wait":
            call.send("asked", call.step, key=call.id)
            return WAIT
        return call.step

    def undo(call: StepCall) -> None:
        note(call, "undo")
        time.sleep(0.005)

    undoing: dict[str, Callable[[StepCall], None]] = {"reserve": undo, "pay": undo, "ship": undo}
    saga = Saga("order")
    for step in STEPS:
        saga.step(step, act, compensate=undoing[step], attempts=1)
    return saga


def main(kafka: str, admin: str, path: str) -> None:
    SagaRunner(saga_of(path), kafka=kafka, admin=admin, partitions=PARTITIONS).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
