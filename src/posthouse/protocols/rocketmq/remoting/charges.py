"""Quotas on one connection: requests are answered at once, and then the broker does not read for a while.

Pulls that wait for messages are answered nevertheless. They are few, one for each queue, and the client's
next ones are read when what it has got is paid for.
"""

from typing import Final

from posthouse.broker.access.quotas import Quota, Quotas
from posthouse.protocols.rocketmq.codec.codes import RequestCode
from posthouse.protocols.stopwatch import Stopwatch
from posthouse.protocols.throttle_timer import ThrottleTimer

_WRITING: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)
_READING: Final = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.QUERY_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID,
    }
)


class Charges:
    def __init__(self, quotas: Quotas, timer: ThrottleTimer) -> None:
        self.quotas = quotas
        """While `quotas.is_empty`, there is nothing to charge: callers ask first."""
        self._timer = timer
        self.stopwatch = Stopwatch()
        """Runs while requests of the client are worked on."""
        self.user = ""
        self.client = ""

    def received(self, code: int, size: int) -> None:
        """A request of `size` bytes."""
        if code in _WRITING:
            self._charge(Quota.WRITTEN, size)

    def answered(self, code: int, size: int) -> None:
        """A request, with a body of `size` bytes."""
        if code in _READING:
            self._charge(Quota.READ, size)

    def worked(self) -> None:
        """Charge the time that the stopwatch has measured since the last call."""
        seconds, self.stopwatch.seconds = self.stopwatch.seconds, 0.0
        self._charge(Quota.TIME, seconds)

    def _charge(self, quota: Quota, amount: float) -> None:
        self._timer.extend(self.quotas.take(quota, self.user, self.client, amount), self.quotas)
