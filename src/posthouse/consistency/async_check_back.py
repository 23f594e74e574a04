"""`check_back` for asyncio: the callback is a coroutine, and checks are answered by a task.

async with AsyncHalfMessages("127.0.0.1:15672", group="shop", was_committed=was_committed) as half:
    async with half.prepared("orders", {"id": 7}, key="ann", name="order-7"):
        await orders.add(7)
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, Self, TypeVar

from posthouse.client.errors import ClientError
from posthouse.client.security import OPEN, Security
from posthouse.consistency.check_back import (
    CHECK_AFTER,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    PATIENCE,
    WAIT_SECONDS,
    count,
    is_passing,
    shown,
)
from posthouse.consistency.contents import Content, Headers
from posthouse.consistency.decisions import (
    AsyncWasCommitted,
    CheckCounts,
    Decision,
    HalfMessage,
    decision_of,
)
from posthouse.consistency.errors import DecidedOtherwise
from posthouse.consistency.half_message_calls import HalfMessageCalls

log = logging.getLogger(__name__)

T = TypeVar("T")

_THREADS: Final = 8
"""Calls to the broker at once, one of which waits for checks."""

_Run = Callable[..., "asyncio.Future[None]"]


class AsyncPreparedMessage:
    """Is decided by the end of its block, unless the block itself has decided it before."""

    def __init__(self, decide: _Run, message: HalfMessage) -> None:
        self._decide = decide
        self.message = message
        self.decision = Decision.UNKNOWN
        """What the broker has confirmed."""

    async def commit(self) -> None:
        """Now, and not at the end of the block. Raises ClientError and DecidedOtherwise."""
        await self._decide(self.message, commit=True)
        self.decision = Decision.COMMIT

    async def roll_back(self) -> None:
        """Raises ClientError and DecidedOtherwise."""
        await self._decide(self.message, commit=False)
        self.decision = Decision.ROLL_BACK


class AsyncHalfMessages:
    """A member of a group of producers. Belongs to one event loop. See HalfMessages."""

    def __init__(
        self,
        address: str,
        *,
        group: str,
        was_committed: AsyncWasCommitted,
        security: Security = OPEN,
        patience: float = PATIENCE,
    ) -> None:
        self._calls = HalfMessageCalls(address, group, security=security, patience=patience)
        self._was_committed = was_committed
        self._group = group
        self._under_way: set[str] = set()
        """Names."""
        self._threads = ThreadPoolExecutor(_THREADS, "posthouse-half-messages")
        self._checking: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self.counts = CheckCounts()

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def start(self) -> None:
        """From now on checks of the group are answered. No-op if it was called before."""
        if self._checking is None and not self._stopping.is_set():
            self._checking = asyncio.create_task(self._answer_checks(), name=f"half messages {self._group}")

    async def close(self) -> None:
        """Returns when no callback runs any more."""
        self._stopping.set()
        if self._checking is not None:
            await self._checking
        self._calls.close()
        self._threads.shutdown(wait=False)

    @asynccontextmanager
    async def prepared(
        self,
        topic: str,
        value: Content,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        name: str | None = None,
        partition: int | None = None,
        check_after: int = CHECK_AFTER,
    ) -> AsyncIterator[AsyncPreparedMessage]:
        """See HalfMessages.prepared. If the task is cancelled, the message is left to a check."""
        self.start()
        name = name or str(uuid.uuid4())
        prepare = partial(
            self._calls.prepare,
            name,
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            check_after=check_after,
        )
        self._under_way.add(name)
        try:
            prepared = AsyncPreparedMessage(self._decide, await self._run(prepare))
            try:
                yield prepared
            except Exception:
                if prepared.decision is Decision.UNKNOWN:
                    await self._answer(prepared.message)
                raise
            if prepared.decision is Decision.UNKNOWN:
                await self._commit(prepared)
        finally:
            self._under_way.discard(name)

    def _decide(self, message: HalfMessage, *, commit: bool) -> "asyncio.Future[None]":
        return self._run(partial(self._calls.decide, message, commit=commit))

    def _run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        return asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def _commit(self, prepared: AsyncPreparedMessage) -> None:
        try:
            await prepared.commit()
        except ClientError as error:
            if not is_passing(error):
                raise
            log.warning("%s is left to a check: %s", shown(prepared.message), error)

    async def _answer_checks(self) -> None:
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            try:
                messages = await self._run(partial(self._calls.checks, seconds=WAIT_SECONDS))
            except ClientError as error:
                self.counts.errors += 1
                log.warning("half messages of %s: trying again in %.1f s: %s", self._group, pause, error)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            pause = FIRST_PAUSE
            for message in messages:
                # Its block runs in this process, and will decide it.
                if message.name not in self._under_way and not self._stopping.is_set():
                    await self._answer(message)

    async def _answer(self, message: HalfMessage) -> None:
        decision = await self._decided(message)
        if decision is Decision.UNKNOWN:
            self.counts.unknown += 1
            return
        try:
            await self._decide(message, commit=decision is Decision.COMMIT)
        except (ClientError, DecidedOtherwise) as error:
            self.counts.errors += 1
            log.warning("%s was not decided: %s", shown(message), error)
        else:
            count(self.counts, decision)

    async def _decided(self, message: HalfMessage) -> Decision:
        try:
            return decision_of(await self._was_committed(message))
        except Exception:
            log.exception("%s: the callback failed; it will be asked again", shown(message))
            return Decision.UNKNOWN
