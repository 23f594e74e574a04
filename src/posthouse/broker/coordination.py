"""What requests use that only the coordinator of a cluster answers, until it is given up.

The work that is divided among brokers is not among it: see `group_scopes`, `transaction_scopes`,
`namespace_scopes` and `log_scopes`.
"""

import asyncio
from typing import Any

from posthouse.broker.telemetry.export import MetricsFile


class Coordination:
    def __init__(self, metrics_file: MetricsFile) -> None:
        self._using: set[asyncio.Future[Any]] = set()
        self._metrics_file = metrics_file

    def load(self) -> None:
        self._metrics_file.open()

    def use(self, until: "asyncio.Future[Any]") -> None:
        """Something uses it until this future is done: `unused` waits for it."""
        self._using.add(until)
        until.add_done_callback(self._using.discard)

    async def unused(self) -> None:
        """Return when all that was begun before has ended."""
        while self._using:
            await asyncio.wait(self._using)

    def unload(self) -> None:
        self._metrics_file.close()
