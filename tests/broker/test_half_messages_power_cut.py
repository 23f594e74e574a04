"""Power cuts on a simulated disk, by seed: what was committed is visible once, what was rolled back never,
and what was prepared is there until it is decided."""

import asyncio
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from posthouse.broker.half_messages.half_message import FullName
from posthouse.model.clock import ManualClock
from posthouse.model.errors import AlreadyDecided, Unavailable
from posthouse.model.topics import Topic
from tests.broker.queues.rig import Rig, running
from tests.broker.test_half_messages import decide, new_topic, prepare, prepare_routed, values
from tests.directories import IN_MEMORY
from tests.storage.files.test_power_cut import moved
from tests.storage.forgetful import ForgetfulDisk
from tests.storage.stores import file_storage

SEEDS = 24


class Lives:
    """Of one broker, each ended by a power cut at a random moment."""

    def __init__(self, place: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.place = place
        self.disk = ForgetfulDisk()
        self.clock = ManualClock()
        self.journal_bytes = self.random.choice([600, 3000])
        self.count = 0
        self.prepared: dict[int, bytes] = {}
        """Acknowledged, by id."""
        self.decided: dict[int, bool] = {}
        """Acknowledged."""
        self.tried: dict[int, set[bool]] = {}
        """Decisions that may count: the power was cut before their answer."""
        self.named: dict[int, str] = {}
        """Those that are routed, by a queue, and have a name."""
        self.lives = 0

    async def live(self) -> None:
        directory = self.place / str(self.lives)
        storage = file_storage(directory, disk=self.disk, clock=self.clock, journal_bytes=self.journal_bytes)
        async with running(storage=storage, clock=self.clock) as rig:
            topic = rig.broker.topics.find("t") or await new_topic(rig)
            if "q" not in rig.namespace.queues:
                await rig.queue("q")
            await self.look(rig, topic)
            work = [self.prepare(rig, topic) for _ in range(self.random.randrange(1, 8))]
            work += [self.decide(rig) for _ in range(self.random.randrange(1, 12))]
            self.random.shuffle(work)
            tasks = [asyncio.create_task(each) for each in work]
            enough = self.random.randrange(len(tasks) + 1)
            while sum(task.done() for task in tasks) < enough:
                await asyncio.sleep(0.0002)
            for _ in range(self.random.randrange(30)):
                await asyncio.sleep(0 if self.random.random() < 0.8 else 0.0002)
            self.disk.cut_power()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                assert result is None or isinstance(result, Unavailable | AlreadyDecided), repr(result)
            following = self.place / str(self.lives + 1)
            shutil.copytree(directory, following)
        self.lives += 1
        self.disk = moved(self.disk.restart(self.random), str(directory), str(following))

    async def prepare(self, rig: Rig, topic: Topic) -> None:
        self.count += 1
        name = f"n{self.count}"
        value = b"%d" % self.count
        try:
            if self.random.random() < 0.5:
                id = await prepare(rig, topic, value, partition=self.random.randrange(3))
            else:
                id = await prepare_routed(rig, value, name=name)
                self.named[id] = name
        except AssertionError as error:
            raise Unavailable("not prepared") from error
        self.prepared[id] = value

    async def decide(self, rig: Rig) -> None:
        await asyncio.sleep(self.random.random() * 0.005)
        open_ids = [id for id in self.prepared if id not in self.decided]
        if not open_ids:
            return
        id, commit = self.random.choice(open_ids), self.random.random() < 0.6
        tried = self.tried.setdefault(id, set())
        tried.add(commit)
        if id in self.named:
            assert rig.broker.half_messages.id_of(FullName("/", "g", self.named[id])) == id
        await decide(rig, id, commit=commit)
        assert self.decided.setdefault(id, commit) == commit, "decided once"

    async def look(self, rig: Rig, topic: Topic) -> None:
        """What a life finds of those before it."""
        seen = [value for partition in range(3) for value in await values(rig, topic, partition)]
        seen += [message.value or b"" for message in await rig.found("q").peek(1000)]
        assert len(seen) == len(set(seen)), "visible once"
        for id, value in self.prepared.items():
            outcome = rig.broker.half_messages._decisions.outcome(id)
            is_open = id in rig.broker.half_messages._undecided
            assert is_open == (outcome is None), id
            if id in self.named:
                assert rig.broker.half_messages.id_of(FullName("/", "g", self.named[id])) == id
            assert (value in seen) == (outcome is True), id
            if id in self.decided:
                assert outcome is self.decided[id], "acknowledged decisions stay"
            elif outcome is not None:
                assert outcome in self.tried[id]
                self.decided[id] = outcome


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory whose syncs cost nothing: they are not what is tested."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-") as made:
        yield Path(made)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_what_power_cuts_leave(place: Path, seed: int) -> None:
    lives = Lives(place, seed)
    for _ in range(6):
        await lives.live()
    assert lives.decided and lives.named, "nothing was shown"
