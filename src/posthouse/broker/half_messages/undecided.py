"""What the broker knows in memory of a half message that is not decided, and of a decision that is not
durable."""

import asyncio
from sys import intern

from posthouse.broker.half_messages.half_message import FullName, HalfMessage
from posthouse.model.errors import PosthouseError


class Undecided:
    __slots__ = ("check_at", "checks", "group", "name", "prepared_ms", "since", "topics")

    def __init__(self, message: HalfMessage, since: float) -> None:
        self.group = intern(message.group)
        self.name: FullName | None = message.full_name if message.name else None
        self.topics = tuple(map(intern, message.topics))
        self.prepared_ms = message.prepared_ms
        self.since = since
        """Monotonic: a clock that is set must park nothing, and put off no check."""
        self.checks = 0
        self.check_at = since
        """Monotonic: when its producers are asked the next time."""


class Decision:
    __slots__ = ("done", "is_commit", "is_parked")

    def __init__(self, *, is_commit: bool, is_parked: bool = False) -> None:
        self.is_commit = is_commit
        self.is_parked = is_parked
        self.done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.done.add_done_callback(_retrieved)

    @property
    def needs_message(self) -> bool:
        return self.is_commit or self.is_parked

    def end(self, result: bool | PosthouseError) -> None:
        """It is durable, or has failed. Whoever waited may be gone."""
        if self.done.done():
            return
        if isinstance(result, PosthouseError):
            self.done.set_exception(result)
        else:
            self.done.set_result(result)


def _retrieved(done: "asyncio.Future[bool]") -> None:
    """Not everybody who decides waits for what becomes of it."""
    if not done.cancelled():
        done.exception()
