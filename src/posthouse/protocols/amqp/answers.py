"""The sink for frames to the client of a session."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from posthouse.protocols.flow_control import Chunk


class Answers(Protocol):
    """What a session needs of the outbox of its connection."""

    @property
    def is_congested(self) -> bool:
        """Whether the client does not read what it was sent."""

    @property
    def takes_deliveries(self) -> bool:
        """Whether messages may be delivered."""

    @property
    def is_memory_short(self) -> bool: ...

    def send(self, frame: Chunk) -> None: ...

    def send_all(self, frames: Sequence[Chunk]) -> None:
        """Send frames that belong together."""

    def gathering(self) -> AbstractContextManager[None]:
        """Frames sent in this context are written together."""


class NoAnswers:
    """For a session without a client: its methods return their results, and nothing is delivered to it."""

    is_congested = True
    takes_deliveries = False
    is_memory_short = False

    def send(self, frame: Chunk) -> None:
        """There is no client that reads it."""

    def send_all(self, frames: Sequence[Chunk]) -> None:
        """There is no client that reads them."""

    def gathering(self) -> AbstractContextManager[None]:
        return nullcontext()
