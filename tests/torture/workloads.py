"""What a workload is to a campaign: clients that live over many lives of a broker, and a last look."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from tests.torture.brokers import Addresses

LOST = (OSError, asyncio.IncompleteReadError)
"""How a client notices that its broker is gone."""
RETRY_SECONDS = 0.02


class Refused(Exception):
    """The broker answered with an error that the client can do nothing about."""


class Client(Protocol):
    async def live(self, addresses: Addresses) -> None:
        """Work until the connection is lost or the task is cancelled."""


class Workload(Protocol):
    most_promises: int
    """How many acknowledgements a round may have before its fault."""

    async def prepare(self, addresses: Addresses) -> None:
        """Make topics or queues, in the first life of the broker."""

    @property
    def clients(self) -> Sequence[Client]: ...

    async def finish(self, addresses: Addresses) -> None:
        """When all faults are over: settle what is open, and note everything that is there."""
