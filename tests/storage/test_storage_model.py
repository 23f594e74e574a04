"""The file engine against a plain model of a log, with restarts, crashes and checkpoints at any moment."""

import asyncio
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from posthouse.storage.files.engine import FileStorage
from tests.directories import IN_MEMORY
from tests.examples import examples
from tests.storage.batches import make_topic
from tests.storage.log_machine import LogMachine
from tests.storage.stores import crash_copy


class StorageMachine(LogMachine):
    storage: FileStorage

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="posthouse-model-", dir=IN_MEMORY))
        self.life = 0

    @property
    def directory(self) -> Path:
        return self.root / str(self.life)

    def make_storage(self) -> FileStorage:
        return FileStorage(
            self.directory,
            clock=self.clock,
            journal_bytes=self.journal_bytes,
            open_files=2,
            checkpoint_seconds=3600,
        )

    @initialize(
        journal_bytes=st.sampled_from([300, 4096]),
        segment_bytes=st.sampled_from(["14", "200", "500"]),
        interval=st.sampled_from(["0", "64", "4096"]),
        durability=st.sampled_from(["fsync", "os"]),
    )
    def begin(self, journal_bytes: int, segment_bytes: str, interval: str, durability: str) -> None:
        self.journal_bytes = journal_bytes
        topic = make_topic(
            partitions=3, segment_bytes=segment_bytes, index_interval_bytes=interval, durability=durability
        )
        self.open_new(self.make_storage(), topic)

    @rule()
    def checkpoint(self) -> None:
        self.run(self.storage.checkpoint())

    @rule()
    def checkpoint_beside_commits(self) -> None:
        async def both() -> None:
            futures = [future for future, _ in self.pending]
            await asyncio.gather(self.storage.checkpoint(), *futures)

        self.run(both())

    @rule()
    def restart(self) -> None:
        self.run(self.storage.close())
        self.settle()
        self.open_again(self.make_storage())

    @rule()
    def crash(self) -> None:
        """Killed with nothing outstanding: exactly what was acknowledged is there."""
        self.settle()
        self._leave_behind()
        self.open_again(self.make_storage())

    @rule()
    def crash_twice(self) -> None:
        self.crash()
        self._leave_behind()
        self.open_again(self.make_storage())

    def _leave_behind(self) -> None:
        self.life += 1
        self.run(crash_copy(self.storage, self.directory))
        self.run(self.storage.close())

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.root)


TestStorageModel = StorageMachine.TestCase
TestStorageModel.settings = settings(
    max_examples=examples(30),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
