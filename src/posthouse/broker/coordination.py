"""What one of several brokers on a storage, the coordinator, does for all of them.

    free ──load──► loading ──start──► held ──stop──► stopping ──unload──► free

The parts exist in every broker. Where they are not loaded they are empty, and refuse what they are asked for.
Groups, transactional ids and housekeeping of logs are not among them: see `group_scopes`,
`transaction_scopes` and `log_scopes`.
"""

import asyncio
from typing import Any

from posthouse.broker.housekeeping import Housekeeping
from posthouse.broker.queues.namespaces import Namespaces
from posthouse.broker.queues.publishing import Publishing
from posthouse.broker.schedule.schedule import Schedule
from posthouse.broker.telemetry.export import MetricsFile
from posthouse.broker.transactions.coordinator import Transactions

_QUEUE_CHECK_SECONDS = 0.1
"""Interval of the check for expired unused queues."""
_RECLAIM_SECONDS = 10.0
"""Interval at which queues release settled messages."""
_REFERRAL_CHECK_SECONDS = 1.0
"""Interval of the look for transactions that other brokers have committed."""


class Coordination:
    def __init__(
        self,
        transactions: Transactions,
        namespaces: Namespaces,
        publishing: Publishing,
        schedule: Schedule,
        metrics_file: MetricsFile,
    ) -> None:
        self._transactions = transactions
        self._namespaces = namespaces
        self._publishing = publishing
        self._schedule = schedule
        self._using: set[asyncio.Future[Any]] = set()
        self._metrics_file = metrics_file
        self._chores = (
            Housekeeping([namespaces.referrals.refer], _REFERRAL_CHECK_SECONDS),
            Housekeeping([namespaces.retention.reclaim], _RECLAIM_SECONDS),
            Housekeeping([namespaces.expire_unused], _QUEUE_CHECK_SECONDS),
        )

    async def load(self) -> None:
        """Load the stored state, and store what a stop or a crash has left to do. If it fails, `stop` and
        `unload` have to follow."""
        self._metrics_file.open()
        await self._namespaces.load()
        await self._schedule.load()

    def start(self) -> None:
        self._schedule.start()
        for chore in self._chores:
            chore.start()

    def use(self, until: "asyncio.Future[Any]") -> None:
        """Something uses the parts until this future is done: `unused` waits for it."""
        self._using.add(until)
        until.add_done_callback(self._using.discard)

    async def unused(self) -> None:
        """Return when all that was begun before has ended."""
        while self._using:
            await asyncio.wait(self._using)
        await self._namespaces.undisturbed()

    async def stop(self) -> None:
        """No more requests come."""
        for chore in self._chores:
            await chore.stop()
        await self._schedule.stop()
        await self._publishing.close()
        await self._namespaces.close()
        await self._transactions.close()  # those that end refer to records for queues

    def unload(self) -> None:
        """After `stop`. Nothing is awaited: to others, all parts are unloaded at the same moment."""
        self._metrics_file.close()
        self._namespaces.unload()
        self._schedule.unload()
