"""An event loop in virtual time, for one process of the world."""

import asyncio
import contextvars
import gc
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from posthouse.protocols.noop import noop
from tests.simulation.network import Network, Server, Socket
from tests.simulation.workers import Pool, Workers
from tests.simulation.world import NS, Entry, PowerCut, Process

T = TypeVar("T")

if TYPE_CHECKING:
    _Base = asyncio.BaseEventLoop  # of which nothing is abstract
else:
    _Base = asyncio.AbstractEventLoop

Failure = Callable[[str, dict[str, Any]], None]


class Loop(_Base):
    """What the broker and its clients use of an event loop, and nothing else."""

    def __init__(self, process: Process, network: Network, on_failure: Failure) -> None:
        self.process = process
        self._world = process.world
        self._soon = process.world.soon
        self._network = network
        self._on_failure = on_failure
        self.workers: Workers | None = None
        self._heard_of_ns = 0

    # Callbacks and time

    def time(self) -> float:
        return self._world.now_ns / NS

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Entry:
        entry = Entry(self.process, self, callback, args, context)
        self._soon(entry)
        return entry

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Entry:
        if self.workers is None or not self.workers.is_working:
            return self.call_soon(callback, *args, context=context)
        # Messages from workers take a while, and come in their order.
        when = self._world.now_ns + self.workers.until_heard_of()
        self._heard_of_ns = max(self._heard_of_ns, when)
        entry = Entry(self.process, self, callback, args, context)
        self._world.at(self._heard_of_ns, entry)
        return entry

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Entry:
        entry = Entry(self.process, self, callback, args, context)
        entry.time = self._world.now_ns / NS + delay
        self._world.at(_ns(entry.time), entry)
        return entry

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Entry:
        entry = Entry(self.process, self, callback, args, context)
        entry.time = when
        self._world.at(_ns(when), entry)
        return entry

    # Futures and tasks

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: Any = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        # The dead leave theirs behind, and that is no mistake of theirs.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        assert isinstance(executor, Pool), "all work that blocks is given to workers of the simulation"
        return executor.run(self, lambda: func(*args))

    # The network

    async def create_server(  # type: ignore[override]
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **options: Any
    ) -> Server:
        return self._network.listen(self, port, factory)

    async def create_connection(  # type: ignore[override]
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **options: Any
    ) -> tuple[Socket, asyncio.BaseProtocol]:
        return await self._network.connect(self, port, factory)

    # State

    def is_running(self) -> bool:
        return not self.process.is_dead

    def is_closed(self) -> bool:
        return self.process.is_dead

    get_debug = staticmethod(bool)
    """No. It is asked for every future, so it is not worth a frame."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.process.is_dead:
            self._on_failure(self.process.name, context)

    def bury(self) -> None:
        """Let the coroutines of the dead unwind, now that nobody is left whom that could disturb."""
        self.process.is_dead = True
        buried: set[asyncio.Task[Any]] = set()
        waits_on = False
        asyncio._set_running_loop(self)
        reported, sys.unraisablehook = sys.unraisablehook, noop
        try:
            while tasks := asyncio.all_tasks(self) - buried:
                for task in tasks:
                    with suppress(
                        Exception, PowerCut
                    ):  # some mind, and would do things that are not possible
                        try:
                            task.get_coro().close()
                        except RuntimeError:  # it has begun to wait for something once more
                            waits_on = True
                buried |= tasks  # some have begun others in their last moment
            if waits_on:
                gc.collect()  # what waits unwinds when it is collected: now, and not in the life of others
        finally:
            sys.unraisablehook = reported
            asyncio._set_running_loop(None)

    async def shutdown_asyncgens(self) -> None:
        """Nobody here uses any."""


def _ns(seconds: float) -> int:
    """Never too early: whoever finds that its time has not come would wait for it again, for ever."""
    return int(seconds * NS) + 1
