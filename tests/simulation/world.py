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
from contextvars import Context, copy_context
from typing import Any

NS = 1_000_000_000
SHOWN = 40
"""How many bytes are too many for a line of the trace."""


class PowerCut(BaseException):
    """Ends the broker in the middle of a call to the disk. Nobody is to catch it but the world."""


class Entry:
    """Something that is to happen: what `asyncio.Handle` is to an event loop, for all loops of the world."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "loop", "process", "time")

    def __init__(
        self,
        process: "Process",
        loop: Any,
        callback: Callable[..., object],
        args: tuple[Any, ...] = (),
        context: Context | None = None,
    ) -> None:
        self.process = process
        self.loop = loop
        """None for what belongs to no program."""
        self.callback = callback
        self.args = args
        self.context = copy_context() if context is None else context
        self.is_cancelled = False
        self.time = 0.0

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        """When it is due, if it was to wait."""
        return self.time


class Process:
    """A program in the world: it may stop for a while, and it may die. The dead do nothing."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.is_dead = False
        self.paused_until = 0
        self._parked: list[Entry] = []

    def pause(self, seconds: float) -> None:
        """Stop as by SIGSTOP; what would have happened meanwhile happens afterwards, in its order."""
        self.paused_until = self.world.now_ns + int(seconds * NS)
        self.world.schedule(self.paused_until, self._resume)

    def resume(self) -> None:
        self.paused_until = 0
        self._resume()

    def park(self, entry: Entry) -> None:
        """Until it goes on. Those of the dead are kept: nothing of theirs is collected before the end."""
        self._parked.append(entry)

    def _resume(self) -> None:
        if self.world.now_ns >= self.paused_until:
            parked, self._parked = self._parked, []
            for entry in parked:
                self.world.soon(entry)


class World:
    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.seed = seed
        self.now_ns = NS
        self.steps = 0
        self.trace: list[str] | None = [] if keep_trace else None
        self._noted: list[str] = []
        self._sent: list[bytes] = []
        self._nobody = Process(self, "nobody")
        self._ready: deque[Entry] = deque()
        self.soon = self._ready.append
        self._timers: list[tuple[int, int, Entry]] = []
        self._arrivals = 0

    def random(self, purpose: str) -> random.Random:
        """Its own stream for every purpose, so that one more draw here changes nothing there."""
        return random.Random(f"{self.seed}/{purpose}")

    def note(self, what: str) -> None:
        line = f"{self.now_ns} {what}"
        self._noted.append(line)
        if self.trace is not None:
            self.trace.append(line)

    def note_bytes(self, who: str, data: bytes) -> None:
        """Somebody gets them. All of them count, and the trace shows the short ones."""
        self._sent.append(data)
        line = f"{self.now_ns} {who} gets {len(data)}"
        self._noted.append(line)
        if self.trace is not None:
            shown = data.hex() if len(data) < SHOWN else hashlib.blake2b(data, digest_size=8).hexdigest()
            self.trace.append(f"{line} {shown}")

    @property
    def digest(self) -> str:
        """Of everything at once: that is cheaper than one by one."""
        digest = hashlib.blake2b("".join(self._noted).encode(), digest_size=16)
        digest.update(b"".join(self._sent))
        return digest.hexdigest()

    def at(self, when_ns: int, entry: Entry) -> None:
        self._arrivals += 1
        heapq.heappush(self._timers, (when_ns, self._arrivals, entry))

    def schedule(self, when_ns: int, callback: Callable[[], None]) -> None:
        """For what belongs to no process."""
        self.at(when_ns, Entry(self._nobody, None, callback))

    def run_until(self, is_over: Callable[[], bool], *, limit_ns: int) -> None:
        """Let things happen. Raises TimeoutError where it would take beyond `limit_ns`: somebody hangs."""
        ready = self._ready
        running = None
        try:
            while not is_over():
                if not ready:
                    self._advance(limit_ns)
                entry = ready.popleft()
                if entry.is_cancelled:
                    continue
                process = entry.process
                if process.is_dead or process.paused_until > self.now_ns:
                    process.park(entry)
                    continue
                self.steps += 1
                if entry.loop is not running:
                    running = entry.loop
                    asyncio._set_running_loop(running)
                try:
                    entry.context.run(entry.callback, *entry.args)
                except PowerCut:
                    pass  # whoever raised it has ended the process
                except Exception as error:  # as any event loop does
                    if running is None:
                        raise
                    running.call_exception_handler({"message": repr(entry.callback), "exception": error})
        finally:
            asyncio._set_running_loop(None)

    def _advance(self, limit_ns: int) -> None:
        if not self._timers:
            raise TimeoutError("nothing is left to happen, and it is not over")
        when, _, entry = heapq.heappop(self._timers)
        if when > self.now_ns:
            self.now_ns = when
            if when > limit_ns:
                raise TimeoutError(f"it is not over after {limit_ns / NS:.0f} s")
        self._ready.append(entry)
