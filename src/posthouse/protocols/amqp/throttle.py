"""Quotas on one connection: how long it is throttled for what it sent, and for what it was sent."""

from posthouse.broker.access.quotas import Quota, Quotas
from posthouse.protocols.stopwatch import Stopwatch
from posthouse.protocols.throttle_timer import ThrottleTimer


class Throttle:
    def __init__(self, quotas: Quotas, *, reading: ThrottleTimer, deliveries: ThrottleTimer) -> None:
        self.quotas = quotas
        """While `quotas.is_empty`, there is nothing to charge. Callers ask it before every read and delivery:
        a property of the throttle would be a call more for each."""
        self._user = ""
        self._client = ""
        self.stopwatch = Stopwatch()
        """Runs while requests of the client are worked on."""
        self.reading = reading
        self.deliveries = deliveries

    def is_for(self, user: str, client: str) -> None:
        """The user and the client id that are charged."""
        self._user = user
        self._client = client

    def written(self, size: int) -> None:
        """The client sent `size` bytes of messages."""
        self._charge(self.reading, Quota.WRITTEN, size)

    def delivered(self, size: int) -> None:
        self._charge(self.deliveries, Quota.READ, size)

    def gotten(self, size: int) -> None:
        """The client got `size` bytes of a message by basic.get: its next request waits."""
        self._charge(self.reading, Quota.READ, size)

    def worked(self) -> None:
        """Charge the time that the stopwatch has measured since the last call."""
        seconds, self.stopwatch.seconds = self.stopwatch.seconds, 0.0
        self._charge(self.reading, Quota.TIME, seconds)

    def _charge(self, timer: ThrottleTimer, quota: Quota, amount: float) -> None:
        timer.extend(self.quotas.take(quota, self._user, self._client, amount), self.quotas)

    def close(self) -> None:
        self.reading.close()
        self.deliveries.close()
