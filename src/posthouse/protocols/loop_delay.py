"""How late the event loop is: time that every client waits, whatever it asks for."""

import asyncio
from typing import Final

from posthouse.model.histogram import SECONDS, Histogram

_SAMPLE_SECONDS: Final = 0.1


class LoopDelay:
    """Sets a timer, looks how late it rings, and sets the next one. Owned by the event loop."""

    def __init__(self) -> None:
        self.seconds = Histogram(SECONDS)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._plan(loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(_SAMPLE_SECONDS, self._ring, loop, loop.time() + _SAMPLE_SECONDS)

    def _ring(self, loop: asyncio.AbstractEventLoop, expected: float) -> None:
        self.seconds.observe(max(loop.time() - expected, 0.0))
        self._plan(loop)
