"""A broker in its own thread, for tests without an event loop."""

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import uvloop

from posthouse.testing.async_broker import AsyncBroker
from posthouse.testing.listener_addresses import ListenerAddresses


class ThreadBroker(ListenerAddresses):
    """A broker as `with ThreadBroker() as broker:`. Kafka clients connect to `broker.kafka`, AMQP clients to
    `broker.amqp`.

    Takes the arguments of `AsyncBroker`.
    """

    def __init__(
        self, *, data: Path | str | None = None, users: Mapping[str, str] | None = None, **settings: Any
    ) -> None:
        self.broker = AsyncBroker(data=data, users=users, **settings)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._thread: threading.Thread | None = None

    def address(self, listener: str) -> str:
        return self.broker.address(listener)

    def start(self) -> None:
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(started,), name="posthouse broker", daemon=True
        )
        self._thread.start()
        started.result()

    def stop(self) -> None:
        """Drain and stop; no-op if the broker is not running."""
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None:
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self, started: "Future[None]") -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            self._loop = runner.get_loop()
            runner.run(self._serve(started))

    async def _serve(self, started: "Future[None]") -> None:
        self._stop = asyncio.Event()
        try:
            await self.broker.__aenter__()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that asked for the broker
            started.set_exception(error)
            return
        started.set_result(None)
        await self._stop.wait()
        await self.broker.__aexit__(None, None, None)


def running_broker(
    *, data: Path | str | None = None, users: Mapping[str, str] | None = None, **settings: Any
) -> ThreadBroker:
    """`with running_broker() as broker:`, the same as `ThreadBroker`."""
    return ThreadBroker(data=data, users=users, **settings)
