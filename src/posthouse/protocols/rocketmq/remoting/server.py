"""What all connections share."""

from typing import Final

from posthouse.broker.broker import Broker
from posthouse.protocols.budget import Budget
from posthouse.protocols.request_metrics import RequestMetrics
from posthouse.protocols.rocketmq.clients import Clients
from posthouse.protocols.rocketmq.queue_locks import QueueLocks
from posthouse.protocols.rocketmq.recall_handles import KEY_PURPOSE
from posthouse.protocols.rocketmq.topics import RocketTopics
from posthouse.settings import Settings

CLUSTER: Final = "posthouse"
BROKER: Final = "posthouse"
"""The name of the one broker in routes. Clients keep offsets under it, so it never changes."""
_SWEEP_SECONDS: Final = 10.0


class RemotingServer:
    """Owned by the event loop."""

    def __init__(
        self,
        broker: Broker,
        settings: Settings,
        budget: Budget,
        requests: RequestMetrics,
    ) -> None:
        self.broker = broker
        self.settings = settings
        self.budget = budget
        self.requests = requests
        self.clients = Clients(broker.monotonic)
        self.locks = QueueLocks(broker.monotonic)
        self.topics = RocketTopics(broker)
        broker.half_messages.ask_by(self.clients.ask)
        self._swept = broker.monotonic()

    @property
    def handle_key(self) -> bytes:
        """Of recall handles."""
        return self.broker.access.key(KEY_PURPOSE)

    def sweep(self) -> None:
        """Called by each connection once a second."""
        now = self.broker.monotonic()
        if now - self._swept >= _SWEEP_SECONDS:
            self._swept = now
            self.clients.forget_silent()
            self.locks.forget_expired()
