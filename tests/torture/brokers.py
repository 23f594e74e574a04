"""Brokers as processes of their own, to be killed, paused and started again.

They are forked from a server that has imported everything already, so that a new one takes some 50 ms. What a
broker is made with (disk, clock, catalog) comes from a `Recipe`, which is sent to the new process.
"""

import asyncio
import ctypes
import logging
import multiprocessing
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvloop

from posthouse.app import App
from posthouse.cli.serve import Served
from posthouse.model.clock import Clock, SystemClock
from posthouse.model.errors import PosthouseError
from posthouse.settings import Settings
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.files.system.disk import Disk, OsDisk
from tests.served import ANY_PORT, on_any_port
from tests.torture.queues.places import NAMESPACES

JOURNAL_BYTES = 48 * 1024
"""So small that there are several checkpoints in every round."""
START_SECONDS = 60.0
_STOP_SECONDS = 60.0
"""Only a broker that hangs needs so long, however busy the machine is."""
REFUSED_TO_START = "the broker cannot start"
"""What its log says where it had a reason of its own; without it, it fell over."""

_PR_SET_PDEATHSIG = 1

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([__name__])


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a broker is made. Those for faults make their own storage."""

    data: Path
    log: Path
    """Where its warnings go."""
    journal_bytes: int = JOURNAL_BYTES
    session_ms: int = 3000
    retention_check_seconds: float = 60.0

    def disk(self) -> Disk:
        return OsDisk()

    def clock(self) -> Clock:
        return SystemClock()

    def storage(self, clock: Clock) -> FileStorage:
        return self.plain_storage(clock)

    async def served(self, clock: Clock) -> Served:
        """What runs in the process."""
        return App(self.settings(), clock=clock, storage=self.storage(clock))

    def settings(self) -> Settings:
        return self.plain_settings()

    def plain_storage(self, clock: Clock, disk: Disk | None = None, **more: Any) -> FileStorage:
        return FileStorage(
            self.data,
            clock=clock,
            journal_bytes=self.journal_bytes,
            open_files=32,
            checkpoint_seconds=0.5,
            disk=disk or self.disk(),
            **more,
        )

    def plain_settings(self, **more: Any) -> Settings:
        more.setdefault("rocketmq", ANY_PORT)
        more.setdefault("rocketmq_grpc", ANY_PORT)
        return on_any_port(
            data=self.data,
            group_heartbeat_ms=100,
            group_session_ms=self.session_ms,
            retention_check_seconds=self.retention_check_seconds,
            shutdown_seconds=2.0,
            namespaces=NAMESPACES,
            **more,
        )


@dataclass(frozen=True, slots=True)
class Addresses:
    """Of one broker, as its clients know them."""

    kafka: str
    amqp: str
    broker: str = ""
    """Its name among several. Only what one broker says is compared in time with what it has said before."""
    admin: str = ""
    rocketmq: str = ""
    rocketmq_grpc: str = ""
    answer_seconds: float | None = None
    """After that time without an answer a client hangs up, as real ones do: the network may have lost it."""


class StartFailed(Exception):
    """The broker ended before it was ready."""


@dataclass(slots=True)
class BrokerProcess:
    """One life of a broker."""

    recipe: Recipe
    addresses: Addresses = field(init=False)
    _process: "multiprocessing.process.BaseProcess" = field(init=False)

    async def start(self) -> None:
        """Raises StartFailed where it dies on the way, which may be what a test wants."""
        receiving, sending = _processes.Pipe(duplex=False)
        self._process = _processes.Process(target=_live, args=(self.recipe, sending), daemon=True)
        self._process.start()
        sending.close()
        try:
            async with asyncio.timeout(START_SECONDS):
                await _readable(receiving.fileno())
            self.addresses = receiving.recv()
        except EOFError:
            self._process.join()
            raise StartFailed(
                f"the broker ended with {self._process.exitcode}; see {self.recipe.log}"
            ) from None
        except TimeoutError:
            self.kill()
            raise StartFailed(f"the broker is not ready after {START_SECONDS:g} s") from None
        finally:
            receiving.close()

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def pause(self) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGCONT)

    async def ended(self, seconds: float) -> bool:
        """Wait until it has died by itself; false if it does not."""
        try:
            async with asyncio.timeout(seconds):
                await _readable(self._process.sentinel)
        except TimeoutError:
            return False
        self._process.join()
        return True

    async def stop(self) -> None:
        """Let it end in good order."""
        self._process.terminate()
        if not await self.ended(_STOP_SECONDS):
            self.kill()
            raise AssertionError("the broker does not stop")


def errors_in(log: Path) -> list[str]:
    """What a broker complained of, each with its traceback."""
    entries = re.split(
        r"^(?=(?:WARNING|ERROR|CRITICAL) )", log.read_text() if log.exists() else "", flags=re.M
    )
    return [entry for entry in entries if entry.startswith(("ERROR", "CRITICAL"))]


@asynccontextmanager
async def running(recipe: Recipe) -> AsyncIterator[BrokerProcess]:
    process = BrokerProcess(recipe)
    await process.start()
    try:
        yield process
    finally:
        process.kill()


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


def _live(recipe: Recipe, ready: Connection) -> None:
    """The new process, from its first line to its last. It does not outlive those who started it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    logging.basicConfig(
        filename=recipe.log,
        level=logging.WARNING,
        format="%(levelname)s %(asctime)s %(process)d %(name)s %(message)s",
        force=True,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_serve(recipe, ready))
        except PosthouseError as error:
            logging.getLogger("posthouse").critical("%s: %s", REFUSED_TO_START, error)


async def _serve(recipe: Recipe, ready: Connection) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    app = await recipe.served(recipe.clock())
    await app.start()
    names = {name: str(address) for name, address in app.listeners.items()}
    kafka, amqp, admin = names["kafka"], names["amqp"], names["admin"]
    rocketmq, rocketmq_grpc = names.get("rocketmq", ""), names.get("rocketmq_grpc", "")
    ready.send(Addresses(kafka, amqp, admin=admin, rocketmq=rocketmq, rocketmq_grpc=rocketmq_grpc))
    ready.close()
    await stop.wait()
    await app.stop()
