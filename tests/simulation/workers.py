"""The broker's threads as steps of the world: one at a time, after a delay that the seed chooses.

A piece of work runs in one go, at one moment. It may be cut short by a crash at any of its calls to the disk.
Pieces of one pool begin in their order, and as many at once as the pool is large. The event loop hears of
what they return a moment later.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from random import Random
from typing import Any, ParamSpec, TypeVar

from posthouse.storage.files.system.workers import Turn
from tests.simulation.world import Entry, Process, World

P = ParamSpec("P")
T = TypeVar("T")

Work = Callable[[], None]


class Workers:
    """See `posthouse.storage.files.system.workers.Workers`."""

    def __init__(self, process: Process, random: Random, slowest_ns: int) -> None:
        self.process = process
        self._random = random
        self._slowest_ns = slowest_ns
        self.is_working = False
        """Whether it is a worker's code that runs now, rather than the event loop's."""

    def pool(self, name: str, size: int) -> "Pool":
        return Pool(self, name, size)

    def serve(self, name: str, turn: Turn, is_idle: Callable[[], bool]) -> "Server":
        return Server(self, name, turn, is_idle)

    def until_heard_of(self) -> int:
        """How long it takes until the event loop hears of what a worker did: mostly no time."""
        return int(self._slowest_ns * self._random.random() ** 8)

    def later(self, name: str, work: Work) -> None:
        """Do it in a while: mostly soon, sometimes late."""
        random = self._random
        delay = int(self._slowest_ns * random.random() ** 4)
        world: World = self.process.world
        loop = asyncio.get_running_loop()

        def step() -> None:
            world.note(f"work {name}")
            self.is_working = True
            try:
                work()
            finally:
                self.is_working = False

        world.at(world.now_ns + delay, Entry(self.process, loop, step))


class Pool(Executor):
    def __init__(self, workers: Workers, name: str, size: int) -> None:
        self._workers = workers
        self._name = name
        self._idle = size
        self._waiting: deque[Work] = deque()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()

        def work() -> None:
            try:
                done.set_result(fn(*args, **kwargs))
            except Exception as error:  # noqa: BLE001 - as any executor does
                done.set_exception(error)

        if self._workers.is_working:
            work()  # one worker that waits for another
        else:
            self._put(work)
        return done

    def run(self, loop: asyncio.AbstractEventLoop, work: Callable[[], T]) -> asyncio.Future[T]:
        """For `run_in_executor`: the loop hears of it when it is done."""
        done: asyncio.Future[T] = loop.create_future()

        def report(setter: Callable[[Any], None], result: Any) -> None:
            if not done.done():
                setter(result)

        def step() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - as any executor does
                loop.call_soon_threadsafe(report, done.set_exception, error)
            else:
                loop.call_soon_threadsafe(report, done.set_result, result)

        self._put(step)
        return done

    def _put(self, work: Work) -> None:
        self._waiting.append(work)
        self._begin()

    def _begin(self) -> None:
        if self._idle and self._waiting:
            self._idle -= 1
            self._workers.later(self._name, self._next)

    def _next(self) -> None:
        if self._waiting:  # unless a shutdown did it
            self._waiting.popleft()()
        self._idle += 1
        if self._waiting:
            self._begin()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        while self._waiting:
            self._waiting.popleft()()


class Server:
    """Takes a turn in a while whenever there is something to do."""

    def __init__(self, workers: Workers, name: str, turn: Turn, is_idle: Callable[[], bool]) -> None:
        self._workers = workers
        self._name = name
        self._turn = turn
        self._is_idle = is_idle
        self._is_due = False
        self._is_over = False

    def wake(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._workers.later(self._name, self._step)

    def _step(self) -> None:
        self._is_due = False
        if self._is_over or self._is_idle():
            return
        self._is_over = not self._turn()
        if not self._is_idle():
            self.wake()

    def join(self) -> None:
        while not self._is_over:
            self._is_over = not self._turn()
