"""Whoever pulls messages, and waits for them if there are none."""

import asyncio


class Polling:
    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def wait(self, seconds: float) -> bool:
        """Whether there may be something before the time is over."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            await asyncio.wait_for(waiting, seconds)
        except TimeoutError:
            return False
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
        return True

    def wake(self) -> None:
        woken, self._waiting = self._waiting, []
        for waiting in woken:
            if not waiting.done():
                waiting.set_result(None)
