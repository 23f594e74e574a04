"""Messages that are delivered in years, by both protocols."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posthouse.model.clock import ManualClock
from posthouse.protocols.rocketmq.codec.codes import TIMER_DELAY_SEC, TIMER_DELIVER_MS
from posthouse.protocols.rocketmq.codec.stored_messages import decode_stored_messages
from posthouse.protocols.rocketmq.grpc.messages.enums import MessageType
from posthouse.protocols.rocketmq.grpc.messages.well_known import Timestamp
from tests.protocols.rocketmq.grpc.conftest import StillBroker
from tests.protocols.rocketmq.grpc.conftest import client_of as grpc_client_of
from tests.protocols.rocketmq.grpc.messaging_client import bodies, system
from tests.protocols.rocketmq.remoting_client import DEADLINE
from tests.protocols.rocketmq.remoting_client import client_of as remoting_client_of

DAY = 86_400
YEARS = 5 * 365 * DAY


@pytest.fixture(params=["memory", "files"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StillBroker]:
    async with StillBroker(None if request.param == "memory" else tmp_path) as running:
        yield running


async def send_all(broker: StillBroker) -> int:
    """By gRPC and by remoting, as clients say when. Returns when the messages are due."""
    due = broker.clock.now_ms() + YEARS * 1000
    async with grpc_client_of(broker) as grpc, remoting_client_of(broker) as remoting:
        later = Timestamp.from_ms(due)
        [entry] = (
            await grpc.send("t", b"grpc", delivery_timestamp=later, message_type=MessageType.DELAY)
        ).entries
        assert entry.recall_handle
        for name, value in ((TIMER_DELIVER_MS, due), (TIMER_DELAY_SEC, YEARS)):
            answer = await remoting.send("t", name.encode(), properties={name: str(value)}, e=0)
            assert answer.code == 0, answer.remark
            assert answer.fields["recallHandle"]
    assert broker.app.broker.scheduled_messages == 3
    return due


async def delivered(broker: StillBroker) -> None:
    """All of them, to consumers of both protocols, and when they were due."""
    await schedule_looked(broker)
    async with asyncio.timeout(DEADLINE):
        while broker.app.broker.scheduled_messages:
            await asyncio.sleep(0.01)
    expected = sorted([b"grpc", TIMER_DELIVER_MS.encode(), TIMER_DELAY_SEC.encode()])
    found: list[bytes] = []
    async with remoting_client_of(broker) as client:
        for queue in range(4):
            answer = await client.pull("t", queueId=queue)
            if answer.code == 0:
                found += [each.body for each in decode_stored_messages(answer.body)]
    assert sorted(found) == expected
    async with grpc_client_of(broker) as grpc:
        messages = await grpc.receive("t", wait=20)
        assert bodies(messages) == expected
        for each in messages:
            assert system(each).message_type == MessageType.DELAY
            when = system(each).delivery_timestamp
            assert when is not None and 0 <= broker.clock.now_ms() - when.ms < 2000


async def test_a_delay_of_years(broker: StillBroker) -> None:
    await send_all(broker)
    for days in (1, 5 * 365 - 2):
        await broker.advance(days * DAY)
        await schedule_looked(broker)
        assert broker.app.broker.scheduled_messages == 3
    await broker.advance(DAY - 1)
    await schedule_looked(broker)
    assert broker.app.broker.scheduled_messages == 3, "it is a second too early"
    await broker.advance(1)
    await delivered(broker)


async def test_a_broker_that_was_away_for_years(tmp_path: Path) -> None:
    clock = ManualClock()
    async with StillBroker(tmp_path, clock) as broker:
        due = await send_all(broker)
    for _ in range(2):
        clock.advance(YEARS / 3)
        async with StillBroker(tmp_path, clock) as broker:
            assert broker.app.broker.scheduled_messages == 3
    clock.advance((due - clock.now_ms()) / 1000 + 0.5)
    async with StillBroker(tmp_path, clock) as broker:
        await delivered(broker)


async def schedule_looked(broker: StillBroker) -> None:
    """At what is due now."""
    for schedule in broker.app.broker._schedules._by_scope.values():
        await schedule.fire_due()
