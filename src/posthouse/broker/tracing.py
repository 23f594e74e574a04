"""The port for tracing: what the broker tells of messages on their way.

The broker knows nothing of spans. With tracing off there is no tracer.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from posthouse.broker.appending import Appended, Produced
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import PartitionId
from posthouse.records.batch import Readable
from posthouse.storage.outcomes import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedBatches:
    """Whole batches of one partition that a client is sent."""

    topic: str
    partition: int
    data: Readable
    wanted: Sequence[range]
    """The offsets that the client asked for or leased; the batches may hold others."""


class DeliveredMessage(Protocol):
    """A message that a queue hands to a consumer, and the place of its record."""

    @property
    def topic(self) -> str: ...

    @property
    def source(self) -> PartitionId: ...

    @property
    def offset(self) -> int: ...

    @property
    def timestamp(self) -> int: ...

    @property
    def headers(self) -> bytes: ...

    @property
    def redelivered(self) -> bool: ...


class PendingAppend(Protocol):
    """One call of `LogWriter.append`: see `Appending`."""

    @property
    def future(self) -> asyncio.Future[list[Outcome]] | None:
        """None if no batch was accepted."""

    def results(self, outcomes: Sequence[Outcome]) -> list[Appended | PosthouseError]: ...


class Tracer(Protocol):
    """Called on the event loop; every call returns at once. Times are nanoseconds since the epoch."""

    def now(self) -> int: ...

    def appended(
        self, batches: Sequence[Produced], appending: PendingAppend, *, started: int, committing: int
    ) -> None:
        """Batches were handed to storage at `committing`, or refused; `appending` tells which."""

    def fetched(self, batches: Sequence[FetchedBatches], client: str | None, *, started: int) -> None:
        """A client that asked at `started` is sent these now."""

    def delivered(self, queue: str, messages: Sequence[DeliveredMessage]) -> None:
        """A queue hands these to consumers now."""
