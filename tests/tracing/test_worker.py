"""The thread that makes spans: bounded, in order, and not stopped by a job that fails."""

import logging
import threading

import pytest

from posthouse.tracing.worker import TracingWorker


def test_jobs_are_done_in_order_and_finished_at_the_end() -> None:
    worker, done = TracingWorker(), list[int]()
    worker.start()
    for number in range(100):
        worker.submit(lambda number=number: done.append(number), 1)  # type: ignore[misc]
    assert worker.close(60)
    assert done == list(range(100))


def test_what_waits_is_bounded_by_number_and_bytes(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []
    worker = TracingWorker(most_jobs=3, most_bytes=100)
    worker.submit(lambda: done.append("first"), 60)
    worker.submit(lambda: done.append("too large"), 41)
    worker.submit(lambda: done.append("second"), 40)
    worker.submit(lambda: done.append("third"), 0)
    worker.submit(lambda: done.append("too many"), 0)
    assert worker.dropped == 2
    assert len(caplog.records) == 1  # one warning a minute
    worker.start()
    assert worker.close(60)
    assert done == ["first", "second", "third"]


def test_room_comes_back_when_jobs_are_done() -> None:
    worker, done = TracingWorker(most_bytes=10), threading.Event()
    worker.start()
    worker.submit(done.set, 10)
    assert done.wait(60)
    assert worker.close(60)
    worker.submit(lambda: None, 10)
    assert not worker.dropped


def test_a_job_that_fails_does_not_end_the_others(caplog: pytest.LogCaptureFixture) -> None:
    worker, done = TracingWorker(), threading.Event()

    def fail() -> None:
        raise RuntimeError("broken")

    worker.submit(fail, 0)
    worker.submit(done.set, 0)
    worker.start()
    assert worker.close(60)
    assert done.is_set()
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_closing_waits_no_longer_than_it_may() -> None:
    worker, release = TracingWorker(), threading.Event()

    def wait() -> None:
        release.wait(60)

    worker.submit(wait, 0)
    worker.start()
    assert not worker.close(0.01)
    release.set()
    assert worker.close(60)
