"""Celery 5, unmodified, with workers that are set up in other ways, or die."""

import time
from pathlib import Path

from celery import chord

from tests.clients.amqp.celery_worker import Worker, application, close, settings
from tests.clients.amqp.rabbit import Rabbit

SECONDS = 30.0
"""How long a result may take."""


def test_chord(rabbit: Rabbit, name: str, tmp_path: Path) -> None:
    """With results in files. A task that looks whether all parts are done is tried again until they are."""
    results = tmp_path / "results"
    results.mkdir()
    environment = settings(rabbit, name, CELERY_TEST_BACKEND=f"file://{results}")
    with Worker(environment, tmp_path / "worker.log", "--concurrency", "2"):
        celery = application(environment)
        parts = [celery.add.s(number, number) for number in range(4)]
        assert chord(parts)(celery.total.s()).get(timeout=SECONDS) == 12
        close(celery)


def test_work_of_a_worker_that_is_killed_is_done_by_another(
    rabbit: Rabbit, name: str, tmp_path: Path
) -> None:
    environment, marker = settings(rabbit, name), tmp_path / "started"
    celery = application(environment)
    with Worker(environment, tmp_path / "first.log", "--pool", "solo") as first:
        result = celery.hang_once.delay(str(marker))
        until = time.monotonic() + SECONDS
        while not marker.exists():
            assert time.monotonic() < until, first.said()
            time.sleep(0.02)
        first.kill()
    with Worker(environment, tmp_path / "second.log", "--pool", "solo"):
        assert result.get(timeout=SECONDS) == "done"
    close(celery)


def test_countdown_that_the_broker_waits_for(rabbit: Rabbit, name: str, tmp_path: Path) -> None:
    """With quorum queues Celery sends through 28 topic exchanges and queues that let messages expire."""
    environment = settings(rabbit, name, CELERY_TEST_QUORUM="yes")
    with Worker(environment, tmp_path / "worker.log", "--pool", "solo") as worker:
        celery = application(environment)
        sent = time.time()
        result = celery.clock.apply_async(countdown=3)
        assert celery.clock.delay().get(timeout=SECONDS) < sent + 3
        done = result.get(timeout=SECONDS)
        assert done - sent > 2.5
        assert "direct exchange" not in worker.said()
        close(celery)
