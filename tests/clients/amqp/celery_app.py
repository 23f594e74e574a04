"""A Celery application, as a user would write one. A worker runs it in its own process."""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from celery import Celery
from kombu import Exchange, Queue

NAME = os.environ.get("CELERY_TEST_NAME", "test")
QUORUM = os.environ.get("CELERY_TEST_QUORUM") == "yes"

app = Celery(
    NAME,
    broker=os.environ.get("CELERY_TEST_BROKER", "amqp://"),
    backend=os.environ.get("CELERY_TEST_BACKEND", "rpc://"),
)
app.conf.update(
    task_default_queue=NAME,
    task_default_exchange=NAME,
    task_default_routing_key=NAME,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_native_delayed_delivery_queue_prefix=NAME,
    result_expires=600,
    control_exchange=f"{NAME}.control",
    event_exchange=f"{NAME}.events",
    event_queue_prefix=NAME,
)
if QUORUM:
    # Celery then leaves waiting for a countdown to the broker: 28 exchanges and queues, one for each bit.
    app.conf.task_queues = [
        Queue(NAME, Exchange(NAME, "topic"), NAME, queue_arguments={"x-queue-type": "quorum"})
    ]
    app.conf.task_default_exchange_type = "topic"

# For `celery beat` only: which file the beats are noted in, and by whom.
BEATS = os.environ.get("CELERY_TEST_BEATS")
if BEATS is not None:
    app.conf.beat_schedule = {
        "often": {"task": f"{__name__}.note", "schedule": 0.2, "args": (BEATS, "often")},
        "seldom": {
            "task": f"{__name__}.note",
            "schedule": 0.5,
            "args": (BEATS, "seldom"),
            "options": {"expires": 30, "priority": 3},
        },
    }
    app.conf.beat_max_loop_interval = 0.1

# Not shared: a test has several applications in one process.
task: Callable[..., Callable[[Callable[..., Any]], Any]] = partial(app.task, shared=False)


@task()
def add(a: int, b: int) -> int:
    return a + b


@task()
def total(numbers: list[int]) -> int:
    return sum(numbers)


@task()
def note(file: str, line: str) -> None:
    with Path(file).open("a") as notes:
        notes.write(f"{line}\n")


@task()
def fail() -> None:
    raise ValueError("on purpose")


@task()
def clock() -> float:
    return time.time()


@task(bind=True, max_retries=5)
def works_at_attempt(self: Any, attempt: int) -> int:
    if self.request.retries + 1 < attempt:
        raise self.retry(countdown=0.05)
    retries: int = self.request.retries
    return retries


@task(acks_late=True)
def hang_once(marker: str) -> str:
    """The first to run it never ends."""
    if not Path(marker).exists():
        Path(marker).touch()
        time.sleep(600)
    return "done"


@task(bind=True)
def request_of(self: Any) -> dict[str, Any]:
    """What the worker knows of the message."""
    delivery = self.request.delivery_info
    return {
        "exchange": delivery["exchange"],
        "routing_key": delivery["routing_key"],
        "redelivered": delivery["redelivered"],
        "reply_to": self.request.reply_to,
        "correlation_id": self.request.correlation_id,
    }
