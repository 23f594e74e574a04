"""Requests to stop, from signal handlers and threads."""

import signal
import threading
import time

from posthouse.spark.stop_request import StopRequest


def test_signals_may_come_at_any_moment_of_waiting() -> None:
    """With a lock that the waiting thread holds itself, this would hang."""
    stop = StopRequest()
    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.001, 0.001)
    try:
        while stop._times < 100:
            stop.wait(0.00001)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    assert stop.is_urgent


def test_waiting_ends_when_the_time_is_up_before_it_begins() -> None:
    """As on a machine that was busy or suspended just then; it must not wait for a request."""
    started = time.monotonic()
    for _ in range(10_000):
        StopRequest().wait(1e-9)
    assert time.monotonic() - started < 60


def test_a_request_ends_the_waiting() -> None:
    stop = StopRequest()
    threading.Timer(0.1, stop).start()
    stop.wait(3600)
    assert stop.is_wanted and not stop.is_urgent
    stop()
    stop()  # nothing waits: it is not lost, and it is no error
    stop.wait(3600)
    assert stop.is_urgent
