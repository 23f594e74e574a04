"""Delayed messages over restarts and crashes: none is lost, none is sent twice."""

import errno
import logging
from pathlib import Path

import pytest

from posthouse.broker.schedule.bucket import log_in
from posthouse.model.clock import ManualClock
from posthouse.model.errors import StorageFull, Unavailable
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space
from tests.broker.schedule.office import DAY, HOUR, MINUTE, SECOND, YEAR, Killed, Office, message
from tests.storage.faults import FaultyDisk


async def test_a_restart_before_in_and_after(file_office: Office) -> None:
    office = file_office
    bodies = await office.delay(100, 200, 300, 90 * SECOND, 2 * HOUR, YEAR)
    periods = {(bucket.log, bucket.period) for bucket in office.schedule._buckets}
    await office.close_and_open()
    assert {(bucket.log, bucket.period) for bucket in office.schedule._buckets} == periods
    assert office.schedule.waiting == 6
    await office.advance(200)
    await office.close_and_open()
    assert office.schedule.waiting == 4
    assert await office.sent() == bodies[:2]
    await office.advance(0)
    assert await office.sent() == bodies[:2], "what was sent is not sent again"
    for step in (100, 90 * SECOND, 2 * HOUR):
        await office.advance(step)
        await office.close_and_open()
    assert await office.sent() == bodies[:5]
    await office.advance(YEAR)
    await office.close_and_open()
    assert await office.sent() == bodies
    assert len(office.schedule._buckets) == 0, "nothing is left of it"


async def test_a_restart_between_two_that_are_due_at_once(file_office: Office) -> None:
    office = file_office
    bodies = await office.delay(*[500] * 25)
    office.clock.advance(0.5)
    assert await office.schedule._step()  # opens the log
    assert await office.schedule._step()
    sent = await office.sent()
    assert 0 < len(sent) <= 10 and sent == bodies[: len(sent)]
    await office.close_and_open()
    await office.advance(0)
    assert await office.sent() == bodies


async def test_latecomers_over_a_restart(file_office: Office) -> None:
    office = file_office
    now = office.clock.now_ms()
    await office.publish([message(now + 300, b"a"), message(now + 900, b"z")])
    await office.advance(300)
    late = [message(now + 300 - number, b"%d" % number) for number in range(1, 26)]
    await office.publish(late)
    await office.schedule._step()
    assert 1 < len(await office.sent()) <= 11, "some of the latecomers"
    await office.publish([message(now + 10, b"last")])
    await office.close_and_open()
    await office.advance(0)
    sent = await office.sent()
    assert len(sent) == 27 and set(sent) == {b"a", b"last", *(entry.value for entry in late)}
    await office.advance(SECOND)
    assert (await office.sent())[27:] == [b"z"]


async def test_a_restart_with_a_smaller_window(place: Path, clock: ManualClock) -> None:
    """What was few enough to be loaded is too much now; but some of it has been sent already."""
    office = await Office(clock, place / "data").open()
    start = clock.now_ms() + DAY
    bodies = [b"%d" % number for number in range(5)]
    await office.publish([message(start + number * 1000, body) for number, body in enumerate(bodies)])
    [bucket] = office.schedule._buckets
    await office.advance(DAY + 2000)
    assert bucket.fired == 3 and not bucket.period.is_finest
    office.window = 4
    await office.close_and_open()
    assert office.schedule.waiting == 2
    await office.advance(MINUTE)
    assert await office.sent() == bodies
    await office.close()


async def test_many_days_of_downtime(file_office: Office) -> None:
    office = file_office
    delays = [SECOND, 3 * HOUR, 5 * MINUTE, 2 * DAY, 9 * DAY, 400 * DAY]
    bodies = await office.delay(*delays)
    await office.close()
    office.clock.advance(10 * DAY / 1000)
    await office.open()
    await office.schedule.fire_due()
    expected = [body for _, body in sorted(zip(delays, bodies, strict=True))]
    assert await office.sent() == expected[:5]
    assert office.schedule.waiting == 1


async def test_a_crash_between_commit_and_acknowledgement(file_office: Office) -> None:
    office = file_office
    bodies = await office.delay(100, 101, 5000)
    office.killed_after_commit = True
    office.clock.advance(1)
    with pytest.raises(Killed):
        await office.schedule.fire_due()
    office.killed_after_commit = False
    await office.crash()
    await office.advance(10 * SECOND)
    assert await office.sent() == bodies


async def test_a_crash_after_every_step(file_office: Office) -> None:
    """Reading, firing, moving and letting go: wherever it ends, the next one goes on."""
    office = file_office
    delays = [10, 20, 70 * SECOND, 71 * SECOND, 2 * HOUR, 2 * HOUR + 1, 4 * DAY]
    bodies = await office.delay(*delays)
    crashes = 0
    for delay in sorted(delays):
        due_ms = START + delay
        office.clock.advance(max(due_ms - office.clock.now_ms(), 0) / 1000)
        for steps in range(1, 60):
            more = True
            for _ in range(steps):
                more = more and await office.schedule._step()
            if not more:
                break
            await office.crash()
            crashes += 1
    assert crashes > 10
    assert await office.sent() == bodies


START = 1_700_000_000_000


async def test_a_full_disk(place: Path, clock: ManualClock) -> None:
    disk = FaultyDisk()
    office = await Office(clock, place / "data", disk=disk).open()
    bodies = await office.delay(100, 90 * SECOND, 2 * HOUR)
    refused = 0
    for step in (100, 90 * SECOND, 2 * HOUR):
        office.clock.advance(step / 1000)
        for after in range(8):
            disk.fail("write", number=errno.ENOSPC, after=after, for_ever=True)
            try:
                await office.schedule.fire_due()
            except StorageFull:
                refused += 1
            disk.heal()
    assert refused > 5
    await office.schedule.fire_due()
    assert await office.sent() == bodies
    await office.close_and_open()
    assert await office.sent() == bodies
    await office.close()


async def test_a_publish_that_fails_leaves_nothing(place: Path, clock: ManualClock) -> None:
    disk = FaultyDisk()
    office = await Office(clock, place / "data", disk=disk).open()
    await office.delay(5)
    disk.fail("write", number=errno.ENOSPC)
    with pytest.raises(StorageFull):
        await office.delay(100, 2 * HOUR)
    assert office.schedule.waiting == 1
    second = await office.delay(101)
    await office.advance(3 * HOUR)
    assert await office.sent() == [b"0", *second]
    assert len(office.schedule._buckets) == 0
    await office.close()


async def test_what_fire_refuses_is_tried_again(office: Office) -> None:
    bodies = await office.delay(100, 100, 200)
    office.refuse_with = Unavailable("not now")
    for _ in range(3):
        with pytest.raises(Unavailable):
            await office.advance(200)
        assert office.schedule.waiting == 3
    [another] = await office.delay(-600)
    office.refuse_with = None
    await office.schedule.fire_due()
    assert await office.sent() == [another, *bodies]


async def test_entries_without_state_are_sent(file_office: Office, caplog: pytest.LogCaptureFixture) -> None:
    """As after a catalog that was rebuilt from what lies on disk."""
    office = file_office
    bodies = await office.delay(500, 2 * DAY)
    keys = [bucket.removal().key for bucket in office.schedule._buckets]
    await office.storage.commit([Put(Space.SCHEDULE, key, None) for key in keys])
    await office.close_and_open()
    assert sum("no state" in record.message for record in caplog.records) == 2
    assert office.schedule.waiting == 2
    await office.advance(SECOND)
    assert await office.sent() == bodies[:1]
    await office.advance(2 * DAY)
    assert await office.sent() == bodies


async def test_state_without_a_log(file_office: Office, caplog: pytest.LogCaptureFixture) -> None:
    office = file_office
    await office.delay(500)
    [bucket] = office.schedule._buckets
    put = bucket.put(bucket.mark, 0)
    await office.storage.commit([Put(Space.SCHEDULE, b"\x00\x00\xff\xff", put.value)])
    assert log_in(b"\x00\x00\xff\xff") == 0xFFFF
    with caplog.at_level(logging.ERROR):
        await office.close_and_open()
    assert "log 65535" in caplog.text
    assert office.schedule.waiting == 1


async def test_damaged_messages_do_not_hold_up_the_others(
    file_office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    office = file_office
    for number in range(6):
        await office.delay(2 * HOUR + number)
        await office.delay(100 + number)
    await office.close()
    assert office.directory is not None
    damaged = 0
    for file in (office.directory / "topics").glob("*/*.log"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0xFF
        file.write_bytes(data)
        damaged += 1
    assert damaged == 2
    await office.open()
    await office.advance(3 * HOUR)
    assert len(await office.sent()) == 10
    assert office.schedule.loaded == 0
    assert len(office.schedule._buckets) == 0
