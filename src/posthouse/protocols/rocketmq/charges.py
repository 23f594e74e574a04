"""Quotas on one connection: requests are answered at once, and then the broker does not read for a while.

Calls that wait for messages are answered nevertheless. They are few, and the client's next ones are read when
what it has got is paid for.
"""

from collections.abc import Callable
from typing import TypeVar

from posthouse.broker.access.quotas import Quota, Quotas
from posthouse.protocols.stopwatch import Stopwatch
from posthouse.protocols.throttle_timer import ThrottleTimer

T = TypeVar("T")


class Charges:
    def __init__(self, quotas: Quotas, timer: ThrottleTimer) -> None:
        self.quotas = quotas
        """While `quotas.is_empty`, there is nothing to charge: callers ask first."""
        self._timer = timer
        self.stopwatch = Stopwatch()
        """Runs while requests of the client are worked on."""
        self.user = ""
        self.client = ""

    def written(self, size: int) -> None:
        self._charge(Quota.WRITTEN, size)

    def read(self, size: int) -> None:
        self._charge(Quota.READ, size)

    def timed(self, work: Callable[[], T]) -> T:
        """Charge the time that it takes, also if it fails."""
        if self.quotas.is_empty:
            return work()
        try:
            with self.stopwatch:
                return work()
        finally:
            self.worked()

    def worked(self) -> None:
        """Charge the time that the stopwatch has measured since the last call."""
        seconds, self.stopwatch.seconds = self.stopwatch.seconds, 0.0
        self._charge(Quota.TIME, seconds)

    def _charge(self, quota: Quota, amount: float) -> None:
        self._timer.extend(self.quotas.take(quota, self.user, self.client, amount), self.quotas)
