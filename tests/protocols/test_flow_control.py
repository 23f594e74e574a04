"""When a connection is read from, what it holds of the budget, and what leaves together: without sockets."""

import asyncio
from collections.abc import Iterable
from typing import cast

import pytest

from posthouse.protocols.budget import FAIR, SMALL, STUCK_SECONDS, Budget
from posthouse.protocols.flow_control import FlowControl
from posthouse.protocols.listener import PARTLY_SENT
from posthouse.protocols.pace import LEAST_BYTES_A_SECOND, SLOW_SECONDS

LIMIT = 1000 * 1024
BUDGET = 4 * LIMIT


class Transport:
    """Counts, and sends nothing by itself."""

    def __init__(self) -> None:
        self.writes: list[list[bytes]] = []
        self.unsent = 0
        self.high_watermark = 0
        self.is_reading = True

    def set_write_buffer_limits(self, *, high: int) -> None:
        self.high_watermark = high

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading
        self.is_reading = True

    def write(self, data: bytes) -> None:
        self.writelines([data])

    def writelines(self, chunks: Iterable[bytes]) -> None:
        self.writes.append([bytes(chunk) for chunk in chunks])
        self.unsent += sum(map(len, self.writes[-1]))


class Connection:
    """One that does nothing but what its flow control tells it."""

    def __init__(self, budget: Budget) -> None:
        self.transport = Transport()
        self.is_behind = False
        self.held = 0
        self.times_gone_on = 0
        self.is_aborted = False
        self.flow = FlowControl(
            asyncio.get_running_loop(),
            cast("asyncio.Transport", self.transport),
            budget,
            "127.0.0.1:1",
            limit=LIMIT,
            is_behind=lambda: self.is_behind,
            held=lambda: self.held,
            go_on=self.go_on,
            abort=self.abort,
        )

    def go_on(self) -> None:
        self.times_gone_on += 1
        self.flow.regulate(held_back=False)

    def abort(self) -> None:
        self.is_aborted = True
        self.flow.close()

    def is_read(self, *, held_back: bool = False) -> bool:
        self.flow.regulate(held_back=held_back)
        assert self.flow.is_paused is not self.transport.is_reading
        return self.transport.is_reading

    def holds(self, size: int) -> None:
        self.held = size
        self.flow.count()


@pytest.fixture
def budget() -> Budget:
    return Budget(BUDGET)


@pytest.fixture
async def connection(budget: Budget) -> Connection:
    return Connection(budget)


async def test_reading_pauses_beyond_the_limit_of_bytes_in_flight(connection: Connection) -> None:
    connection.flow.in_flight = LIMIT
    assert connection.is_read()
    connection.flow.in_flight += 1
    assert not connection.is_read()
    assert not connection.is_read()
    connection.flow.in_flight -= 1
    assert connection.is_read()


async def test_while_storage_is_behind_only_a_fair_share_is_in_flight(connection: Connection) -> None:
    connection.is_behind = True
    connection.flow.in_flight = FAIR
    assert connection.is_read()
    connection.flow.in_flight = FAIR + 1
    assert not connection.is_read()
    connection.is_behind = False
    assert connection.is_read()


async def test_a_protocol_has_reasons_of_its_own(connection: Connection) -> None:
    assert not connection.is_read(held_back=True)
    assert connection.is_read()


async def test_a_throttle_pauses_until_it_is_over(connection: Connection) -> None:
    connection.flow.throttle.extend(0.05)
    connection.flow.throttle.extend(0.001)
    begun = asyncio.get_running_loop().time()
    assert not connection.is_read()
    while not connection.times_gone_on:
        await asyncio.sleep(0.001)
    assert asyncio.get_running_loop().time() - begun >= 0.045
    assert connection.transport.is_reading


async def test_while_the_budget_is_spent_only_those_who_hold_nothing_are_read_from(
    budget: Budget, connection: Connection
) -> None:
    other = Connection(budget)
    small = Connection(budget)
    connection.holds(BUDGET)
    other.holds(SMALL + 1)
    small.holds(SMALL)
    assert budget.room < 0
    assert [each.is_read() for each in (connection, other, small)] == [False, False, True]
    connection.holds(0)
    assert other.times_gone_on == 1 and other.transport.is_reading
    assert connection.is_read()


async def test_a_connection_that_does_not_move_is_closed_while_memory_is_short(
    budget: Budget, connection: Connection
) -> None:
    other = Connection(budget)
    connection.holds(BUDGET)
    other.holds(SMALL + 1)
    for second in range(STUCK_SECONDS):
        assert not connection.is_aborted
        other.holds(SMALL + 100 - second)  # it moves
        budget.sweep()
    assert connection.is_aborted and not other.is_aborted
    assert budget.room > 0


async def test_what_counts(budget: Budget, connection: Connection) -> None:
    connection.flow.in_flight = 100_000
    connection.holds(20_000)
    assert BUDGET - budget.room == 120_000
    connection.transport.unsent = SMALL + 1
    connection.flow.count()
    assert BUDGET - budget.room == 120_000 + SMALL + 1 + PARTLY_SENT
    connection.flow.close()
    assert budget.room == BUDGET


async def test_what_is_sent_in_one_turn_leaves_with_one_write(connection: Connection) -> None:
    outbox = connection.flow.outbox
    outbox.send(b"a")
    outbox.send_all([b"b", b"c"])
    assert connection.transport.writes == []
    await asyncio.sleep(0)
    assert connection.transport.writes == [[b"abc"]]


async def test_much_leaves_at_once_and_is_not_copied_together(connection: Connection) -> None:
    outbox = connection.flow.outbox
    large = b"x" * 40_000
    outbox.send_all([b"head", large, large])
    assert connection.transport.writes == [[b"head", large, large]]
    assert connection.flow.account.held == 80_004 + PARTLY_SENT


async def test_above_the_high_watermark_a_client_is_congested(connection: Connection) -> None:
    outbox = connection.flow.outbox
    assert connection.transport.high_watermark == LIMIT
    outbox.pause()
    assert outbox.is_congested and not outbox.takes_deliveries
    outbox.send(b"x" * LIMIT)
    assert not outbox.is_overfull
    outbox.send(b"x")
    assert outbox.is_overfull
    outbox.resume()
    assert not outbox.is_congested and not outbox.is_overfull


async def test_a_client_that_takes_nothing_gets_nothing_while_memory_is_short(
    budget: Budget, connection: Connection
) -> None:
    connection.transport.unsent = SMALL + 1
    assert connection.flow.outbox.takes_deliveries
    Connection(budget).holds(BUDGET + 1)
    assert not connection.flow.outbox.takes_deliveries
    connection.transport.unsent = SMALL
    assert connection.flow.outbox.takes_deliveries


async def test_a_slow_sender_inside_a_frame(connection: Connection) -> None:
    flow = connection.flow
    for _ in range(SLOW_SECONDS - 1):
        flow.pace.received += LEAST_BYTES_A_SECOND - 1
        assert not flow.is_too_slow(in_frame=True)
    assert flow.is_too_slow(in_frame=True)
    assert not flow.is_too_slow(in_frame=False)
    connection.is_read(held_back=True)
    assert not any(flow.is_too_slow(in_frame=True) for _ in range(2 * SLOW_SECONDS)), "it is not read from"


async def test_after_the_end_nothing_is_written_and_no_callback_called(connection: Connection) -> None:
    flow = connection.flow
    flow.throttle.extend(0.001)
    flow.outbox.send(b"x")
    flow.close()
    await asyncio.sleep(0.01)
    assert connection.transport.writes == [] and connection.times_gone_on == 0
