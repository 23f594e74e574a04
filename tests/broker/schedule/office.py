"""A schedule that sends into one topic, and everything that is asked of it while it does."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from posthouse.broker.schedule.entry import Scheduled
from posthouse.broker.schedule.schedule import Schedule
from posthouse.model.clock import ManualClock
from posthouse.model.errors import PosthouseError, TooLate
from posthouse.model.ids import PartitionId
from posthouse.storage.contract import Storage
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.files.system.disk import Disk
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.operations import Operation, Put
from posthouse.storage.spaces import Space
from tests.storage.batches import append, make_topic, read_all
from tests.storage.stores import crash_copy

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
YEAR = 365 * DAY


class Killed(BaseException):
    """The process ends here."""


def message(due_ms: int, value: bytes = b"", sequence: bytes | None = None) -> Scheduled:
    return Scheduled(
        due_ms=due_ms, namespace="/", exchange="orders", key=b"key", value=value, sequence=sequence
    )


class Office:
    """Counts the messages it is given; each is checked when it is sent. Call `open` first."""

    def __init__(
        self,
        clock: ManualClock,
        directory: Path | None = None,
        *,
        disk: Disk | None = None,
        window: int = 100,
        most_at_once: int = 10,
        most_bytes_at_once: int = 100_000,
        journal_bytes: int = 64 * 1024,
    ) -> None:
        self.clock = clock
        self.directory = directory
        self.disk = disk
        self.window = window
        self.most_at_once = most_at_once
        self.most_bytes_at_once = most_bytes_at_once
        self.journal_bytes = journal_bytes
        self.topic = make_topic("orders", segment_bytes="4000")
        self.count = 0
        self.places: dict[bytes, tuple[int, bytes]] = {}
        """By body: what is needed to recall the message."""
        self.sent_at_once: list[list[bytes]] = []
        self.refuse_with: PosthouseError | None = None
        self.killed_after_commit = False

    @property
    def target(self) -> PartitionId:
        return self.topic.partition(0)

    async def open(self) -> "Office":
        """Also the way to begin again, after `close`."""
        self.storage: Storage = (
            MemoryStorage(self.clock)
            if self.directory is None
            else FileStorage(
                self.directory,
                clock=self.clock,
                disk=self.disk,
                journal_bytes=self.journal_bytes,
                open_files=8,
                checkpoint_seconds=3600,
            )
        )
        await self.storage.open()
        if self.topic.id not in self.storage.topics:
            await self.storage.create_topics([self.topic])
        self.schedule = Schedule(
            self.storage,
            self.clock,
            self.send,
            window=self.window,
            most_at_once=self.most_at_once,
            most_bytes_at_once=self.most_bytes_at_once,
        )
        self.schedule.load(self.storage.take_state(Space.SCHEDULE))
        return self

    async def close(self) -> None:
        await self.schedule.stop()
        await self.storage.close()

    async def send(self, entries: Sequence[Scheduled], puts: Sequence[Put]) -> None:
        assert entries and puts
        assert len(entries) <= self.most_at_once
        if self.refuse_with is not None:
            raise self.refuse_with
        now = self.clock.now_ms()
        dues = [entry.due_ms for entry in entries]
        assert max(dues) <= now, "nothing is sent early"
        assert dues == sorted(dues), "what is due first is sent first"
        values = [entry.value for entry in entries]
        operations: list[Operation] = [append(self.target, *values, timestamps=dues), *puts]
        await self.storage.commit(operations)
        if self.killed_after_commit:
            raise Killed
        self.sent_at_once.append(values)

    async def delay(self, *delays: int) -> list[bytes]:
        """Publish messages in one commit, each with a delay in ms; returns their bodies."""
        now = self.clock.now_ms()
        entries = [
            message(now + delay, b"%d" % (self.count + number), self.schedule.new_sequence())
            for number, delay in enumerate(delays)
        ]
        for entry in entries:
            assert entry.sequence is not None
            self.places[entry.value] = (entry.due_ms, entry.sequence)
        self.count += len(entries)
        await self.publish(entries)
        return [entry.value for entry in entries]

    async def publish(self, entries: Sequence[Scheduled]) -> None:
        while not all(self.schedule.is_ready(entry.due_ms) for entry in entries):
            for entry in entries:
                await self.schedule.prepare(entry.due_ms)
        await self.storage.commit(self.schedule.appends(entries))
        self.schedule.stored(entries)

    def ask_to_recall(self, *bodies: bytes) -> "list[asyncio.Future[None]]":
        """In this order. They are decided in `fire_due`, or by the schedule's task."""
        return [asyncio.ensure_future(self.schedule.recall(*self.places[body])) for body in bodies]

    async def recall(self, *bodies: bytes) -> list[bytes]:
        """Returns those that are recalled; for the others it is too late."""
        asked = self.ask_to_recall(*bodies)
        await asyncio.sleep(0)
        await self.schedule.fire_due()
        results = await asyncio.gather(*asked, return_exceptions=True)
        for result in results:
            assert result is None or isinstance(result, TooLate), result
        return [body for body, result in zip(bodies, results, strict=True) if result is None]

    async def advance(self, ms: int) -> None:
        self.clock.advance(ms / 1000)
        await self.schedule.fire_due()

    async def sent(self) -> list[bytes | None]:
        """What is in the topic, in its order."""
        return list((await read_all(self.storage, self.target)).values())

    async def close_and_open(self) -> None:
        await self.close()
        await self.open()

    async def crash(self) -> None:
        """Killed, and begun again with what it left behind."""
        assert isinstance(self.storage, FileStorage) and self.directory is not None
        after = self.directory.with_name(f"{self.directory.name}+")
        await crash_copy(self.storage, after)
        await self.close()
        self.directory = after
        await self.open()
