"""When and in which order delayed messages arrive in their topic, and what is left of them."""

import pytest

from posthouse.broker.schedule.logs import TOPIC_NAME
from tests.broker.schedule.office import DAY, HOUR, MINUTE, SECOND, YEAR, Office, message


async def test_nothing_is_in_the_topic_before_it_is_due(office: Office) -> None:
    [body] = await office.delay(5000)
    await office.advance(4999)
    assert await office.sent() == []
    assert office.schedule.waiting == 1
    await office.advance(1)
    assert await office.sent() == [body]
    assert office.schedule.waiting == 0


async def test_what_is_due_first_comes_first(office: Office) -> None:
    a, b, c, d = await office.delay(3000, 10, 90_000, 2999)
    [e] = await office.delay(0)
    await office.advance(100_000)
    assert await office.sent() == [e, b, d, a, c]


async def test_what_is_due_at_once_keeps_its_order(office: Office) -> None:
    now = office.clock.now_ms()
    due = now + 2 * HOUR
    bodies = [b"%d" % number for number in range(6)]
    await office.publish([message(due, bodies[0]), message(due, bodies[1])])
    await office.advance(HOUR)
    await office.publish([message(due, bodies[2])])
    await office.advance(HOUR - 70 * SECOND)
    await office.publish([message(due, bodies[3])])
    await office.advance(60 * SECOND)
    await office.publish([message(due, bodies[4]), message(due, bodies[5])])
    await office.advance(10 * SECOND)
    assert await office.sent() == bodies, "whichever logs they waited in"


async def test_a_delay_of_milliseconds(office: Office) -> None:
    for delay in (1, 2, 3):
        [body] = await office.delay(delay)
        await office.advance(delay - 1)
        assert body not in await office.sent()
        await office.advance(1)
        assert body in await office.sent()


async def test_what_is_due_already_is_sent_at_once(office: Office) -> None:
    await office.publish([message(0, b"long ago"), message(office.clock.now_ms(), b"now")])
    await office.schedule.fire_due()
    assert await office.sent() == [b"long ago", b"now"]


async def test_a_latecomer_before_what_was_sent(office: Office) -> None:
    """Its log has been fired beyond it already."""
    now = office.clock.now_ms()
    await office.publish([message(now + 100, b"a"), message(now + 101, b"b"), message(now + 900, b"z")])
    await office.advance(101)
    await office.publish([message(now + 50, b"late"), message(now + 20, b"later")])
    await office.schedule.fire_due()
    assert office.sent_at_once == [[b"a", b"b"], [b"later", b"late"]]
    await office.advance(SECOND)
    assert await office.sent() == [b"a", b"b", b"later", b"late", b"z"]


async def test_more_latecomers_than_are_sent_at_once(office: Office) -> None:
    await office.delay(100)
    await office.advance(100)
    late = await office.delay(*[-number for number in range(1, 35)])
    await office.delay(100)
    await office.schedule.fire_due()
    assert sorted((await office.sent())[1:], key=str) == sorted(late, key=str)
    at_once = min(10, office.window)
    assert [len(sent) for sent in office.sent_at_once[1:-1]] == [at_once] * (
        34 // at_once - 1 + (34 % at_once > 0)
    )


@pytest.mark.parametrize("delay", [70 * SECOND, 3 * HOUR, 5 * DAY, 300 * DAY, 3 * YEAR, 80 * YEAR])
async def test_long_delays(office: Office, delay: int) -> None:
    """From log to log, as the time comes nearer; with a look at the clock now and then."""
    bodies = await office.delay(*[delay + 7 * number for number in range(50)])
    assert office.schedule.waiting == 50
    while (left := delay - office.clock.now_ms() + START) > 2:
        await office.advance(left // 2)
        assert await office.sent() == []
        assert office.schedule.waiting == 50
    await office.advance(left)
    assert await office.sent() == bodies[:1]
    await office.advance(7 * 49)
    assert await office.sent() == bodies


START = 1_700_000_000_000


async def test_years_in_one_leap(office: Office) -> None:
    delays = [YEAR, 1, DAY, 400 * DAY, 20, HOUR, 40 * YEAR, 5 * MINUTE]
    bodies = await office.delay(*delays)
    await office.advance(41 * YEAR)
    assert await office.sent() == [body for _, body in sorted(zip(delays, bodies, strict=True))]


async def test_logs_are_given_back(office: Office) -> None:
    for _ in range(5):
        await office.delay(10, SECOND, MINUTE, HOUR, DAY, YEAR)
        await office.advance(2 * YEAR)
    [topic] = [topic for topic in office.storage.topics.values() if topic.name == TOPIC_NAME]
    assert len(await office.sent()) == 30
    assert sum(office.storage.size(partition) for partition in topic.partition_ids()) == 0
    assert len(office.schedule._buckets) == 0
    assert office.schedule._logs.free == topic.partitions


async def test_more_logs_are_made_when_they_are_needed(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posthouse.broker.schedule.logs.COUNT", 40)
    monkeypatch.setattr("posthouse.broker.schedule.schedule.SPARE_LOGS", 10)
    for number in range(90):
        await office.delay(number * SECOND, number * MINUTE, number * HOUR)
    for _ in range(90):
        await office.advance(HOUR)
    assert len(await office.sent()) == 270
    [topic] = [topic for topic in office.storage.topics.values() if topic.name == TOPIC_NAME]
    assert topic.partitions > 40


async def test_more_logs_are_made_when_much_is_moved(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posthouse.broker.schedule.logs.COUNT", 20)
    monkeypatch.setattr("posthouse.broker.schedule.schedule.SPARE_LOGS", 10)
    office.schedule._window.limit = 16
    bodies = await office.delay(*range(2 * HOUR, 3 * HOUR, MINUTE // 2))
    assert len(office.schedule._buckets) <= 2
    await office.advance(4 * HOUR)
    assert await office.sent() == bodies


async def test_the_clock_is_set_back(office: Office) -> None:
    now = office.clock.now_ms()
    await office.publish([message(now + 500, b"a"), message(now + 800, b"c")])
    await office.advance(600)
    office.clock.jump(-HOUR)
    assert await office.sent() == [b"a"]
    [soon] = await office.delay(100)
    await office.publish([message(now + 550, b"b")])  # before what its log has been fired up to
    await office.advance(HOUR - 100)
    assert await office.sent() == [b"a", soon], "never early by the clock as it is"
    await office.advance(300)
    assert await office.sent() == [b"a", soon, b"b", b"c"]


async def test_the_clock_is_set_back_within_a_second(office: Office) -> None:
    """What comes then lies before what its log has been fired up to, and is not due yet."""
    now = office.clock.now_ms()
    await office.publish([message(now + 900, b"a")])
    await office.advance(900)
    office.clock.jump(-800)
    due = [300 + (number * 7) % 300 for number in range(300)]
    await office.publish([message(now + each, b"%d" % each) for each in due])
    for until in range(200, 700, 50):
        await office.advance(until - (office.clock.now_ms() - now))
        assert await office.sent() == [b"a", *(b"%d" % each for each in range(300, min(until + 1, 600)))]
    assert office.schedule.waiting == 0


async def test_latecomers_that_are_not_due_yet(office: Office) -> None:
    """They came before the clock was set back."""
    now = office.clock.now_ms()
    await office.publish([message(now + 900, b"a")])
    await office.advance(900)
    await office.publish([message(now + number, b"%d" % number) for number in range(200, 500)])
    office.clock.jump(-800)
    await office.schedule.fire_due()
    assert office.schedule._next_ms() == now + 200
    for _ in range(80):
        await office.advance(10)
        assert office.schedule.loaded <= 100
    assert await office.sent() == [b"a", *(b"%d" % number for number in range(200, 500))]
    assert office.schedule.waiting == 0


async def test_the_clock_is_set_forward(office: Office) -> None:
    bodies = await office.delay(100, HOUR, 2 * HOUR)
    office.clock.jump(HOUR + MINUTE)
    await office.schedule.fire_due()
    assert await office.sent() == bodies[:2]
    office.clock.jump(-HOUR)
    await office.advance(2 * HOUR)
    assert await office.sent() == bodies
