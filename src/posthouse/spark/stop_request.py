"""Ctrl-C and SIGTERM as a request that a loop looks at, and waits for."""

from contextlib import suppress
from threading import Lock


class StopRequest:
    """Made once: finish the current batch or step. Made twice: do not even wait for that.

    A signal handler runs in the thread that it interrupts, perhaps inside of `wait`. Setting an Event there
    could wait for ever for a lock that this very thread holds. SimpleQueue.get of Python 3.11 ignores its
    timeout if the time is up before it begins to wait. A bare lock has neither problem: `wait` takes it, a
    request releases it.
    """

    def __init__(self) -> None:
        self._times = 0
        self._unheard = Lock()
        self._unheard.acquire()

    def __call__(self, *_: object) -> None:
        """Usable as a signal handler."""
        self._times += 1
        with suppress(RuntimeError):  # released by an earlier request that `wait` has not seen yet
            self._unheard.release()

    @property
    def is_wanted(self) -> bool:
        return self._times > 0

    @property
    def is_urgent(self) -> bool:
        return self._times > 1

    def wait(self, seconds: float) -> None:
        """Until the time is up, or there is a request."""
        self._unheard.acquire(timeout=seconds)
