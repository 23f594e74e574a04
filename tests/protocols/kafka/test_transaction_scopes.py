"""Transactional ids whose scope a member holds, as clients of both brokers see it."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from posthouse.app import App
from posthouse.model.scopes import scope_of_transactional_id
from posthouse.protocols.kafka.codec.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from tests.protocols.kafka.transactional_wire import TransactionalWire
from tests.protocols.kafka.two_brokers import TwoBrokers, two_brokers
from tests.protocols.kafka.wire import Wire

ID = "tx"


@pytest.fixture
async def brokers() -> AsyncIterator[TwoBrokers]:
    async with two_brokers() as running:
        await running.hold(scope_of_transactional_id(ID), running.member)
        yield running


@pytest.fixture
async def wire(brokers: TwoBrokers) -> AsyncIterator[Wire]:
    """A client of the member."""
    async with Wire(_address(brokers.member)) as connected:
        yield connected


@pytest.fixture
async def there(brokers: TwoBrokers) -> AsyncIterator[Wire]:
    """A client of the coordinator."""
    async with Wire(_address(brokers.coordinator)) as connected:
        yield connected


def _address(app: App) -> str:
    return str(app.listeners["kafka"])


async def _aborted(wire: Wire, producer: TransactionalWire) -> ErrorCode:
    """As an administrator does it, in one partition."""
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
    )
    response = await wire.ask(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
    return ErrorCode(response.markers[0].topics[0].partitions[0].error_code)


@pytest.mark.parametrize("newer", [False, True])
async def test_a_transaction_at_the_member(newer: bool, brokers: TwoBrokers, there: Wire, wire: Wire) -> None:
    topic = await there.create_topic("t")
    producer = TransactionalWire(wire, newer=newer, id=ID)
    assert await producer.init() == 0
    for commit in (True, False):
        await producer.write(b"x")
        assert await producer.end(commit=commit) == 0
    assert not brokers.coordinator.broker.transactions.ids.all() and not brokers.relayed
    fetched = await there.fetch(topic, isolation_level=1, max_bytes=2**20)
    assert fetched.last_stable_offset == 4
    assert [each.first_offset for each in fetched.aborted_transactions or ()] == [2]


@pytest.mark.parametrize("asked", ["coordinator", "member"])
async def test_an_administrator_aborts_it_by_any_broker(
    asked: str, brokers: TwoBrokers, there: Wire, wire: Wire
) -> None:
    topic = await there.create_topic("t")
    producer = TransactionalWire(wire, newer=True, id=ID)
    assert await producer.init() == 0
    await producer.write(b"x")
    assert await _aborted(there if asked == "coordinator" else wire, producer) == ErrorCode.NONE
    assert brokers.member.broker.transactions.get(ID).work is None
    fetched = await there.fetch(topic, isolation_level=1, max_bytes=2**20)
    assert fetched.last_stable_offset == 2
    assert await producer.end() in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


async def test_the_producer_of_no_open_transaction(brokers: TwoBrokers, there: Wire, wire: Wire) -> None:
    await there.create_topic("t")
    producer = TransactionalWire(wire, newer=True, id=ID)
    assert await producer.init() == 0
    assert await _aborted(there, producer) == ErrorCode.NONE, "there is nothing to abort"


async def test_operators_see_and_abort_transactions_of_all_brokers(
    brokers: TwoBrokers, there: Wire, wire: Wire
) -> None:
    await there.create_topic("t")
    await there.create_topic("u")
    own = TransactionalWire(there, newer=True, id=_of_coordinator(), topic="u")
    other = TransactionalWire(wire, newer=True, id=ID)
    for producer in (own, other):
        assert await producer.init() == 0
        await producer.write(b"x")
    base = f"http://{brokers.coordinator.listeners['admin']}/v1"
    async with httpx.AsyncClient() as http:
        listed: dict[str, Any] = (await http.get(f"{base}/transactions")).json()
        assert [each["id"] for each in listed["items"]] == sorted([own.id, ID])
        assert listed["total"] == 2
        aborted = await http.post(f"{base}/transactions/{ID}/abort", json={})
        assert (aborted.status_code, aborted.json()["state"]) == (200, "aborted")
        listed = (await http.get(f"{base}/transactions")).json()
        assert [each["id"] for each in listed["items"]] == [own.id]
        everything = (await http.get(f"{base}/transactions?all=true")).json()
        assert [each["id"] for each in everything["items"]] == sorted([own.id, ID])


def _of_coordinator() -> str:
    """A transactional id of another scope."""
    scope = scope_of_transactional_id(ID)
    return next(name for name in map(str, range(99)) if scope_of_transactional_id(name) != scope)
