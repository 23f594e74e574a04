"""Celery 5, unmodified: a real worker with its pool of processes, and the rpc:// result backend."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord, group

from tests.clients.amqp.celery_worker import Beat, Worker, application, close, settings
from tests.clients.amqp.rabbit import Rabbit

SECONDS = 30.0
"""How long a result may take."""

pytestmark = pytest.mark.xdist_group("celery")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("celery")


@pytest.fixture(scope="module")
def environment(rabbit: Rabbit) -> dict[str, str]:
    return settings(rabbit, f"celery-{os.getpid()}-{time.time_ns()}")


@pytest.fixture(scope="module")
def worker(environment: dict[str, str], directory: Path) -> Iterator[Worker]:
    with Worker(environment, directory / "worker.log", "--concurrency", "2") as running:
        yield running


@pytest.fixture(scope="module")
def celery(worker: Worker, environment: dict[str, str]) -> Iterator[Any]:
    made = application(environment)
    yield made
    close(made)


def test_results(celery: Any) -> None:
    results = [celery.add.delay(number, 1) for number in range(30)]
    assert [result.get(timeout=SECONDS) for result in results] == list(range(1, 31))


def test_failure(celery: Any) -> None:
    with pytest.raises(ValueError, match="on purpose"):
        celery.fail.delay().get(timeout=SECONDS)


def test_group_and_chain(celery: Any) -> None:
    several = group(celery.add.s(number, number) for number in range(5))()
    assert several.get(timeout=SECONDS) == [0, 2, 4, 6, 8]
    assert chain(celery.add.s(1, 2), celery.add.s(3), celery.add.s(4))().get(timeout=SECONDS) == 10


def test_retries(celery: Any) -> None:
    assert celery.works_at_attempt.delay(4).get(timeout=SECONDS) == 3


@pytest.mark.parametrize("late", ["countdown", "eta"])
def test_not_before_its_time(celery: Any, late: str) -> None:
    """The worker holds such a message and raises its prefetch count by one meanwhile."""
    due = time.time() + 0.5
    options: dict[str, Any] = {"countdown": 0.5}
    if late == "eta":
        options = {"eta": celery.app.now().fromtimestamp(due, celery.app.timezone)}
    results = [celery.clock.apply_async(**options) for _ in range(8)]
    assert celery.add.delay(1, 1).get(timeout=SECONDS) == 2, "others pass meanwhile"
    assert all(result.get(timeout=SECONDS) >= due - 0.05 for result in results)


def test_message_as_the_worker_sees_it(celery: Any) -> None:
    result = celery.request_of.delay()
    found = result.get(timeout=SECONDS)
    assert found["exchange"] in ("", celery.NAME)
    assert (found["routing_key"], found["redelivered"]) == (celery.NAME, False)
    assert (found["correlation_id"], bool(found["reply_to"])) == (result.id, True)


def test_remote_control(celery: Any) -> None:
    """A fanout exchange to the workers, and answers through a queue that expires."""
    replies = celery.app.control.ping(timeout=30, limit=1)
    assert [list(reply.values()) for reply in replies] == [[{"ok": "pong"}]]
    found = celery.app.control.inspect(timeout=30, limit=1).registered()
    assert any("add" in task for tasks in found.values() for task in tasks)


def test_inspecting_a_worker(celery: Any) -> None:
    """Everything that `celery inspect` asks, while one task waits for its time."""
    due = celery.add.apply_async((1, 1), countdown=600)
    inspect = celery.app.control.inspect(timeout=30, limit=1)

    def asked(command: str, *arguments: Any) -> Any:
        answers = getattr(inspect, command)(*arguments)
        assert answers is not None, command
        [answer] = answers.values()
        return answer

    until = time.monotonic() + SECONDS
    while due.id not in [each["request"]["id"] for each in asked("scheduled")]:
        assert time.monotonic() < until, "the task was not seen"
    assert asked("ping") == {"ok": "pong"}
    assert asked("active") == []
    assert asked("reserved") == []
    assert [queue["name"] for queue in asked("active_queues")] == [celery.NAME]
    assert asked("stats")["broker"]["transport"] == "amqp"
    assert asked("conf")["task_default_queue"] == celery.NAME
    assert asked("query_task", due.id)[due.id][0] == "scheduled"
    assert asked("revoked") == []
    assert "clock" in asked("clock")
    celery.app.control.revoke(due.id, reply=True, timeout=30, limit=1)
    assert asked("revoked") == [due.id]


def test_control_commands(celery: Any) -> None:
    """A worker takes another queue while it runs, limits a task, and changes its pool."""
    control, other = celery.app.control, f"{celery.NAME}-other"

    def done(replies: Any) -> bool:
        return any("ok" in answer for reply in replies for answer in reply.values())

    assert done(control.add_consumer(other, reply=True, timeout=30, limit=1))
    assert celery.add.apply_async((2, 3), queue=other).get(timeout=SECONDS) == 5
    assert done(control.cancel_consumer(other, reply=True, timeout=30, limit=1))
    until = time.monotonic() + SECONDS
    with celery.app.connection() as connection:  # a worker answers first, and cancels then
        while connection.default_channel.queue_declare(other, passive=True).consumer_count:
            assert time.monotonic() < until, "it still takes from that queue"
    waiting = celery.add.apply_async((3, 4), queue=other)
    assert celery.add.delay(1, 1).get(timeout=SECONDS) == 2
    assert not waiting.ready(), "nobody takes from that queue any more"
    assert done(control.add_consumer(other, reply=True, timeout=30, limit=1))
    assert waiting.get(timeout=SECONDS) == 7
    name = celery.add.name
    assert done(control.rate_limit(name, "1000/s", reply=True, timeout=30, limit=1))
    assert done(control.rate_limit(name, 0, reply=True, timeout=30, limit=1))
    assert done(control.pool_grow(1, reply=True, timeout=30, limit=1))
    assert done(control.pool_shrink(1, reply=True, timeout=30, limit=1))
    assert celery.add.delay(5, 5).get(timeout=SECONDS) == 10


def test_beat(celery: Any, environment: dict[str, str], directory: Path) -> None:
    """`celery beat` as a process of its own sends tasks by its schedule; the worker does them."""
    beats = directory / "beats"
    beats.touch()
    with Beat(environment | {"CELERY_TEST_BEATS": str(beats)}, directory / "beat"):
        until = time.monotonic() + SECONDS
        while (lines := beats.read_text().split()).count("often") < 5 or "seldom" not in lines:
            assert time.monotonic() < until, lines
            time.sleep(0.05)
    assert lines.count("often") > lines.count("seldom")


def test_events(celery: Any) -> None:
    """Workers tell what they do on a topic exchange; a monitor listens."""
    seen: list[str] = []
    celery.app.control.enable_events(reply=True, timeout=30, limit=1)
    with celery.app.connection() as connection:
        receiver = celery.app.events.Receiver(
            connection, handlers={"task-succeeded": lambda event: seen.append(event["uuid"])}
        )
        with receiver.consumer_context() as (listening, _, _):
            result = celery.add.delay(1, 2)
            while result.id not in seen:
                listening.drain_events(timeout=SECONDS)


def test_chord_is_refused_by_the_rpc_backend(celery: Any) -> None:
    """By Celery itself, with any broker: nothing of it is sent."""
    with pytest.raises(NotImplementedError, match="does not support chords"):
        chord([celery.add.s(1, 1), celery.add.s(2, 2)])(celery.total.s())
