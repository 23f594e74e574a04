"""Virtual time, and the one queue of everything that is to happen.

There is one thread. Every callback of every process in the world (the broker's event loop, its workers, the
clients' event loop) is an entry in one queue, ordered by time and then by the order of arrival, so a seed
decides all of it. Time stands still while something runs, and jumps to the next entry when nothing is left
to do now.

Whatever happens can be noted in the trace. Its digest is what two runs of one seed are compared by.
"""

import asyncio
import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any

NS = 1_000_000_000


class PowerCut(BaseException):
    """Ends the broker in the middle of a call to the disk. Nobody is to catch it but the world."""


class Process:
    """A program in the world: it may stop for a while, and it may die. The dead do nothing."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.is_dead = False
        self.paused_until = 0
        self._parked: list[asyncio.Handle] = []

    def pause(self, seconds: float) -> None:
        """Stop as by SIGSTOP; what would have happened meanwhile happens afterwards, in its order."""
        self.paused_until = self.world.now_ns + int(seconds * NS)
        self.world.schedule(self.paused_until, self._resume)

    def resume(self) -> None:
        self.paused_until = 0
        self._resume()

    def park(self, handle: asyncio.Handle) -> None:
        """Until it goes on. Those of the dead are kept: nothing of theirs is collected before the end."""
        self._parked.append(handle)

    def _resume(self) -> None:
        if self.world.now_ns >= self.paused_until:
            parked, self._parked = self._parked, []
            for handle in parked:
                self.world.soon(self, handle)


class World:
    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.seed = seed
        self.now_ns = NS
        self.steps = 0
        self.trace: list[str] | None = [] if keep_trace else None
        self._digest = hashlib.blake2b(digest_size=16)
        self._ready: deque[tuple[Process | None, Any]] = deque()
        """Handles of event loops with their process, or calls of nobody's."""
        self._timers: list[tuple[int, int, Process | None, Any]] = []
        self._arrivals = 0

    def random(self, purpose: str) -> random.Random:
        """Its own stream for every purpose, so that one more draw here changes nothing there."""
        return random.Random(f"{self.seed}/{purpose}")

    def note(self, what: str) -> None:
        line = f"{self.now_ns} {what}"
        self._digest.update(line.encode())
        if self.trace is not None:
            self.trace.append(line)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def soon(self, process: Process, handle: asyncio.Handle) -> None:
        self._ready.append((process, handle))

    def at(self, when_ns: int, process: Process, handle: asyncio.Handle) -> None:
        self._arrivals += 1
        heapq.heappush(self._timers, (when_ns, self._arrivals, process, handle))

    def schedule(self, when_ns: int, callback: Callable[[], None]) -> None:
        """For what belongs to no process."""
        self._arrivals += 1
        heapq.heappush(self._timers, (when_ns, self._arrivals, None, callback))

    def run_until(self, is_over: Callable[[], bool], *, limit_ns: int) -> None:
        """Let things happen. Raises TimeoutError where it would take beyond `limit_ns`: somebody hangs."""
        ready = self._ready
        while not is_over():
            if not ready:
                self._advance(limit_ns)
            process, handle = ready.popleft()
            if process is None:
                handle()
            elif handle._cancelled:
                continue
            elif process.is_dead or process.paused_until > self.now_ns:
                process.park(handle)
            else:
                self._run(process, handle)

    def _advance(self, limit_ns: int) -> None:
        if not self._timers:
            raise TimeoutError("nothing is left to happen, and it is not over")
        when, _, process, handle = heapq.heappop(self._timers)
        self.now_ns = max(self.now_ns, when)
        if self.now_ns > limit_ns:
            raise TimeoutError(f"it is not over after {limit_ns / NS:.0f} s")
        self._ready.append((process, handle))

    def _run(self, process: Process, handle: Any) -> None:
        self.steps += 1
        asyncio._set_running_loop(handle._loop)
        try:
            handle._context.run(handle._callback, *handle._args)
        except PowerCut:
            pass  # whoever raised it has ended the process
        except Exception as error:  # noqa: BLE001 - as any event loop does
            handle._loop.call_exception_handler({"message": repr(handle), "exception": error})
        finally:
            asyncio._set_running_loop(None)
