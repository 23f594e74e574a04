"""Quotas on one connection: how long it is throttled for what it sent, and for what it was sent."""

from posthouse.broker.access.quotas import Quota, Quotas
from posthouse.protocols.stopwatch import Stopwatch
from posthouse.protocols.throttle_timer import ThrottleTimer


class Throttle:
    def __init__(self, quotas: Quotas, *, reading: ThrottleTimer, deliveries: ThrottleTimer) -> None:
        self._quotas = quotas
        self._user = ""
        self._client = ""
        self.stopwatch = Stopwatch()
        """To run while the client's requests are worked on."""
        self.reading = reading
        self.deliveries = deliveries

    def is_for(self, user: str, client: str) -> None:
        """Who pays."""
        self._user = user
        self._client = client

    @property
    def is_on(self) -> bool:
        return not self._quotas.is_empty

    def written(self, size: int) -> None:
        """The client sent `size` bytes of messages."""
        self.reading.extend(self._quotas.take(Quota.WRITTEN, self._user, self._client, size))

    def delivered(self, size: int) -> None:
        self.deliveries.extend(self._quotas.take(Quota.READ, self._user, self._client, size))

    def gotten(self, size: int) -> None:
        """One message that was asked for: the next request waits."""
        self.reading.extend(self._quotas.take(Quota.READ, self._user, self._client, size))

    def worked(self) -> None:
        """For as long as the stopwatch says, since the last time."""
        seconds, self.stopwatch.seconds = self.stopwatch.seconds, 0.0
        self.reading.extend(self._quotas.take(Quota.TIME, self._user, self._client, seconds))

    def close(self) -> None:
        self.reading.close()
        self.deliveries.close()
