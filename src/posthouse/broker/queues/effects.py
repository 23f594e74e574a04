"""Effects of requests that take a moment: dead letters, and auto-delete queues whose last consumer left.

An answer that comes before its effect misleads: a queue is still there after its last consumer was cancelled,
a dead letter not yet. So methods that show them wait for the effects that are under way at that time.

A queue that is too long, or whose messages expire, may be at work all the time. That is done in short steps.
Only requests for that queue, or for one that its dead letters may reach, wait for the step under way.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from posthouse.broker.queues.background import Background
from posthouse.broker.queues.definition import QueueDefinition

_ROUNDS: Final = 4
"""An effect may cause another one: a dead letter that finds its queue full is dead-lettered again."""
_SECONDS: Final = 1.0
"""A disk may be slow; no request waits for longer than this."""


class Effects:
    """Of one namespace. Owned by the event loop."""

    def __init__(self, background: Background, leading_to: Callable[[str], set[str]]) -> None:
        """`leading_to` names the exchanges from which messages may get to a queue."""
        self._background = background
        self._leading_to = leading_to
        self._under_way: set[asyncio.Task[None]] = set()
        self._steps: dict[asyncio.Task[None], QueueDefinition] = {}

    def __bool__(self) -> bool:
        """Whether any request has to wait, not only those that ask for a certain queue."""
        return bool(self._under_way)

    def start(self, work: Coroutine[Any, Any, None], subject: object) -> asyncio.Task[None]:
        """Run `work` in the background; failures are logged as those of `subject`."""
        task = self._background.start(work, subject)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    def start_step(
        self, work: Coroutine[Any, Any, None], subject: object, queue: QueueDefinition
    ) -> asyncio.Task[None]:
        """Run one step of work that may continue for long in this queue."""
        task = self._background.start(work, subject)
        self._steps[task] = queue
        task.add_done_callback(self._steps.pop)
        return task

    async def done(self, queue: str | None = None) -> None:
        """Return when the effects under way have ended, and the steps that concern `queue`."""
        deadline = asyncio.get_running_loop().time() + _SECONDS
        for _ in range(_ROUNDS):
            under_way = self._under_way | self._steps_for(queue)
            seconds = deadline - asyncio.get_running_loop().time()
            if not under_way or seconds <= 0:
                return
            await asyncio.wait(under_way, timeout=seconds)

    def _steps_for(self, name: str | None) -> set[asyncio.Task[None]]:
        if name is None or not self._steps:
            return set()
        leading: set[str] | None = None
        steps = set()
        for task, queue in self._steps.items():
            exchange, key = queue.dead_letter_exchange, queue.dead_letter_key
            if queue.name == name or (exchange == "" and key in (None, name)):
                steps.add(task)
            elif exchange:
                if leading is None:
                    leading = self._leading_to(name)
                if exchange in leading:
                    steps.add(task)
        return steps
