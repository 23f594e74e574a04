"""Acknowledgements of one turn, gathered for each queue: clients send them one by one, and many."""

from posthouse.broker.queues.message import Message, MessageSource
from posthouse.protocols.request_metrics import ApiMetrics


class Settlements:
    def __init__(self, metrics: ApiMetrics) -> None:
        self._metrics = metrics
        self.acked: dict[MessageSource, list[Message]] = {}
        self.raised: dict[MessageSource, None] = {}
        """Queues that have a consumer which can take more."""

    def flush(self) -> None:
        """To be called before anything that could notice the difference, and at the end of a turn."""
        if self.acked:
            acked, self.acked = self.acked, {}
            for queue, messages in acked.items():
                queue.ack(messages)
                self._metrics.untimed += len(messages)
        if self.raised:
            raised, self.raised = self.raised, {}
            for queue in raised:
                queue.credit_raised()
