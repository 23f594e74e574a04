"""The machine that the broker runs on: it boots, and it dies in every way that the faults ask for."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import posthouse.app
from posthouse.app import App
from posthouse.broker.groups import groups
from posthouse.broker.groups.committing import GroupOffsets
from posthouse.model.topic_config import Durability
from posthouse.settings import Address, Settings
from posthouse.storage.files.engine import FileStorage
from tests.simulation.data_directory import DataDirectory
from tests.simulation.disk import Disk
from tests.simulation.listener import Listener
from tests.simulation.loop import Failure, Loop
from tests.simulation.network import Network
from tests.simulation.workers import Workers
from tests.simulation.world import PowerCut, Process, World

KAFKA_PORT = 9092
AMQP_PORT = 5672
_EPOCH_MS = 1_700_000_000_000


class Clock:
    """See `posthouse.model.clock.Clock`. The wall clock may jump."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.jumped_ms = 0

    def now_ms(self) -> int:
        return _EPOCH_MS + self.jumped_ms + self._world.now_ns // 1_000_000

    def monotonic(self) -> float:
        return self._world.now_ns / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Small ones, so that files roll and back-pressure begins within a few dozen requests."""

    journal_bytes: int = 8000
    open_files: int = 4
    checkpoint_seconds: float = 2.0
    connection_buffer_bytes: int = 64 * 1024
    slowest_work_ns: int = 5_000_000


class Machine:
    def __init__(self, world: World, network: Network, limits: Limits, on_failure: Failure) -> None:
        self.world = world
        self.network = network
        self.limits = limits
        self.clock = Clock(world)
        self.disk = Disk(world)
        self.lives = 0
        self.is_stopping = False
        self.app: App | None = None
        self.loop: Loop | None = None
        self.make_storage: Callable[..., FileStorage] = FileStorage
        self.make_offsets: Callable[..., GroupOffsets] = GroupOffsets
        self.durability = Durability.FSYNC
        self.on_death: Callable[[str], None] = lambda kind: None
        self._databases: dict[str, bytes] = {}
        self._files: dict[str, int] = {}
        self._on_failure = on_failure
        self._random = world.random("machine")
        self._changes_left: int | None = None
        self._ending = "kill"
        self._dead: list[Loop] = []

    @property
    def is_up(self) -> bool:
        """Whether it takes requests and can store them."""
        return not self.is_stopping and self.has_started and self.storage.is_writable

    @property
    def has_started(self) -> bool:
        return self.app is not None and bool(self.app.listeners)

    def boot(self) -> None:
        """Start the broker, of which the disk is all that is left."""
        assert self.app is None, "it is running"
        self.lives += 1
        self.is_stopping = False
        self.world.note(f"boot {self.lives}")
        process = Process(self.world, f"broker {self.lives}")
        loop = self.loop = Loop(process, self.network, self._on_failure)
        workers = Workers(process, self.world.random(f"workers {self.lives}"), self.limits.slowest_work_ns)
        loop.workers = workers
        self.disk.on_change = self._changed
        settings = Settings(
            data=DataDirectory.directory,
            kafka=Address("127.0.0.1", KAFKA_PORT),
            amqp=Address("127.0.0.1", AMQP_PORT),
            admin=None,
            connection_buffer_bytes=self.limits.connection_buffer_bytes,
            retention_check_seconds=3.0,
            auto_create_topics=False,
            default_durability=self.durability,
        )
        self.storage = self.make_storage(
            settings.data,
            clock=self.clock,
            defaults=settings.topic_defaults(),
            journal_bytes=self.limits.journal_bytes,
            open_files=self.limits.open_files,
            checkpoint_seconds=self.limits.checkpoint_seconds,
            disk=self.disk,
            data_directory=DataDirectory(self.disk, self._databases, self._files),
            workers=workers,
            random_bytes=self.random_bytes,
        )
        self.app = App(settings, clock=self.clock, storage=self.storage)
        self._starting = loop.create_task(self.app.start())
        self._starting.add_done_callback(self._started)

    def _started(self, task: Any) -> None:
        error = task.exception()
        self.world.note(f"started {error!r}" if error else "started")
        if error is not None:
            logging.getLogger("posthouse").error("the start failed", exc_info=error)
        if error is not None:
            self.die("failed start")

    def random_bytes(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def die_at_change(self, changes: int, kind: str) -> None:
        """Die in the middle of a write, a sync or a commit that is so many away."""
        self._changes_left = changes
        self._ending = kind

    def stay_alive(self) -> None:
        self._changes_left = None

    def _changed(self, call: str, path: str) -> None:
        if self._changes_left is not None:
            self._changes_left -= 1
            if self._changes_left < 0:
                self.die(self._ending)
                raise PowerCut

    def die(self, kind: str) -> None:
        """At once. What was written stays, unless the power fails: then only what was synced."""
        if self.app is None or self.loop is None:
            return
        self.world.note(f"dies by {kind}")
        self._changes_left = None
        self.loop.process.is_dead = True
        self.network.cut_all_of(self.loop)
        # Their code may still unwind, and must find nothing to do harm to.
        self._dead.append(self.loop)
        self.app = self.loop = None
        self.disk = self.disk.inherited(power_failed=kind == "power-cut")
        self.on_death(kind)

    def scrap(self) -> None:
        """It is all over."""
        if self.loop is not None:
            self._dead.append(self.loop)
        for loop in self._dead:
            loop.bury()

    def stop(self) -> None:
        """As by SIGTERM."""
        if self.is_up and self.loop is not None:
            self.is_stopping = True
            self.loop.create_task(self._stop())

    async def _stop(self) -> None:
        app = self.app
        assert app is not None
        await app.stop()
        if app is self.app:
            self.die("stop")


@contextmanager
def installed(machine: Machine) -> Iterator[None]:
    """The broker's listeners are on the simulated network, and what it takes from the system's randomness
    (ids of topics, of members) comes from the seed."""
    with (
        mock.patch.object(os, "urandom", machine.random_bytes),
        mock.patch.object(posthouse.app, "Listener", Listener),
        mock.patch.object(groups, "GroupOffsets", machine.make_offsets),
    ):
        yield
