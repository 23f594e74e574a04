"""Power cuts on a simulated disk, by seed: what was accepted is sent, and sent once."""

import asyncio
import contextlib
import random
import shutil
from pathlib import Path

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.errors import TooLate, Unavailable
from tests.broker.schedule.office import HOUR, MINUTE, SECOND, Office
from tests.storage.files.test_power_cut import moved
from tests.storage.forgetful import ForgetfulDisk

ROUNDS = 40
PER_TEST = 10
DELAYS = (0, 5, 300, SECOND, 40 * SECOND, 3 * MINUTE, 2 * HOUR)


class Round:
    """Lives of one schedule, each ended by a power cut at a random moment."""

    def __init__(self, place: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.place = place / str(seed)
        self.clock = ManualClock()
        self.disk = ForgetfulDisk()
        self.office = Office(self.clock, self.place / "0", disk=self.disk, window=6, most_at_once=4)
        self.office.journal_bytes = self.random.choice([600, 3000])
        self.accepted: set[bytes] = set()
        self.recalled: set[bytes] = set()
        self.maybe_recalled: set[bytes] = set()
        self.due: dict[bytes, int] = {}
        self.lives = 0

    async def live(self) -> None:
        await self.office.open()
        sent = await self.office.sent()
        assert len(sent) == len(set(sent))
        work = [self.publish() for _ in range(self.random.randrange(1, 6))]
        work += [self.recall() for _ in range(self.random.randrange(4))]
        work += [self.advance() for _ in range(self.random.randrange(1, 6))]
        self.random.shuffle(work)
        tasks = [asyncio.create_task(each) for each in work]
        for _ in range(self.random.randrange(60)):
            await asyncio.sleep(0 if self.random.random() < 0.8 else 0.001)
        self.disk.cut_power()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert result is None or isinstance(result, Unavailable), result
        await self.lose_power()

    async def publish(self) -> None:
        delays = [self.random.choice(DELAYS) for _ in range(self.random.randrange(1, 8))]
        now, first = self.clock.now_ms(), self.office.count
        self.due |= {b"%d" % (first + number): now + delay for number, delay in enumerate(delays)}
        self.accepted |= set(await self.office.delay(*delays))

    async def recall(self) -> None:
        if not self.accepted:
            return
        bodies = self.random.sample(sorted(self.accepted), min(len(self.accepted), 3))
        self.maybe_recalled |= set(bodies)
        asked = self.office.ask_to_recall(*bodies)
        await asyncio.sleep(0)
        try:
            await self.office.schedule.fire_due()
        finally:
            for body, each in zip(bodies, asked, strict=True):
                with contextlib.suppress(TooLate, Unavailable):
                    await each
                    self.recalled.add(body)

    async def advance(self) -> None:
        await self.office.advance(self.random.choice(DELAYS))

    async def lose_power(self) -> None:
        """The process ends without another word; the next one finds what the disk kept."""
        before, after = self.place / str(self.lives), self.place / str(self.lives + 1)
        self.lives += 1
        shutil.copytree(before, after)
        await self.office.close()
        self.disk = moved(self.disk.restart(self.random), str(before), str(after))
        self.office.directory, self.office.disk = after, self.disk

    async def end(self) -> None:
        await self.office.open()
        await self.office.advance(3 * HOUR)
        sent = await self.office.sent()
        assert len(sent) == len(set(sent)), "sent once"
        assert self.accepted - self.maybe_recalled <= set(sent) <= set(self.due), "what was accepted is sent"
        assert not self.recalled & set(sent), "recalled or sent, and never both"
        assert self.office.schedule.waiting == 0
        await self.office.close()


@pytest.mark.parametrize("first", range(0, ROUNDS, PER_TEST))
async def test_what_was_accepted_is_sent_once(place: Path, first: int) -> None:
    recalled = 0
    for seed in range(first, first + PER_TEST):
        round = Round(place, seed)
        for _ in range(4):
            await round.live()
        await round.end()
        assert round.accepted, f"seed {seed} does something"
        recalled += len(round.recalled)
    assert recalled


async def test_nothing_is_sent_after_the_disk_has_failed(place: Path) -> None:
    disk = ForgetfulDisk()
    office = await Office(ManualClock(), place / "data", disk=disk).open()
    await office.delay(10)
    disk.cut_power()
    with pytest.raises(Unavailable):
        await office.advance(SECOND)
    assert await office.sent() == []
    await office.close()
