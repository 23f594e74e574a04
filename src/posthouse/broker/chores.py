"""The periodic work of the broker that coordinates."""

from posthouse.broker.groups.groups import Groups
from posthouse.broker.housekeeping import Housekeeping
from posthouse.broker.queues.namespaces import Namespaces
from posthouse.broker.retention import Retention
from posthouse.broker.transactions.coordinator import Transactions

_QUEUE_CHECK_SECONDS = 0.1
"""Interval of the check for expired unused queues."""
_RECLAIM_SECONDS = 10.0
"""Interval at which queues release settled messages."""
_TRANSACTION_CHECK_SECONDS = 1.0
"""Interval of the check for expired transactions."""


class Chores:
    def __init__(
        self,
        retention: Retention,
        groups: Groups,
        transactions: Transactions,
        namespaces: Namespaces,
        *,
        check_seconds: float,
    ) -> None:
        """`check_seconds` is the interval of retention and compaction."""
        self._all = (
            Housekeeping([transactions.abort_expired], _TRANSACTION_CHECK_SECONDS),
            Housekeeping([retention.enforce, groups.expire, transactions.expire], check_seconds),
            Housekeeping([namespaces.retention.reclaim], _RECLAIM_SECONDS),
            Housekeeping([retention.compact], check_seconds),
            Housekeeping([namespaces.expire_unused], _QUEUE_CHECK_SECONDS),
        )

    def start(self) -> None:
        for each in self._all:
            each.start()

    async def stop(self) -> None:
        for each in self._all:
            await each.stop()
