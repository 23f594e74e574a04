"""Two-phase commits on the wire (KIP-939), read with kio's eyes."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
from kio.schema.init_producer_id.v6.response import InitProducerIdResponse

from posthouse.model.scopes import scope_of_transactional_id
from posthouse.protocols.kafka.codec.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.handlers.test_transaction_admin import described, listed
from tests.protocols.kafka.transactional_wire import TransactionalWire
from tests.protocols.kafka.two_brokers import TwoBrokers, two_brokers
from tests.protocols.kafka.wire import Wire

ID = "tx"
ALLOWED: dict[str, Any] = {"transaction_two_phase_commit_enable": True}
INFINITE_MS = 2**31 - 1


async def init(
    wire: Wire,
    *,
    id: str | None = ID,
    enable: bool = True,
    keep: bool = False,
    producer: tuple[int, int] = (-1, -1),
    timeout: float = 60,
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id=id,  # type: ignore[arg-type]
        transaction_timeout=timedelta(seconds=timeout),  # type: ignore[arg-type]
        producer_id=producer[0],  # type: ignore[arg-type]
        producer_epoch=producer[1],  # type: ignore[arg-type]
        enable2_pc=enable,
        keep_prepared_txn=keep,
    )
    return await wire.ask_kio(request, InitProducerIdResponse)  # type: ignore[no-any-return]


def identity(answer: InitProducerIdResponse) -> tuple[int, int]:
    assert answer.error_code is ErrorCode.none
    return answer.producer_id, answer.producer_epoch


def ongoing(answer: InitProducerIdResponse) -> tuple[int, int]:
    assert answer.error_code is ErrorCode.none
    return answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch


def producer_of(wire: Wire, answer: InitProducerIdResponse) -> TransactionalWire:
    made = TransactionalWire(wire, newer=True, id=ID)
    made.producer_id, made.epoch = identity(answer)
    return made


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    async with AsyncBroker(**ALLOWED) as broker, Wire(broker.kafka) as connected:
        yield connected


async def stable(wire: Wire, topic: bytes) -> int:
    return (await wire.fetch(topic, isolation_level=1)).last_stable_offset


@pytest.mark.parametrize("commit", [True, False])
async def test_a_successor_decides(wire: Wire, commit: bool) -> None:
    topic = await wire.create_topic("t")
    first = await init(wire, timeout=10**6)
    assert ongoing(first) == (-1, -1)
    owner = producer_of(wire, first)
    await owner.write(b"x")
    answer = await init(wire, keep=True)
    assert ongoing(answer) == identity(first)
    assert identity(answer) == (first.producer_id, first.producer_epoch + 1)
    assert await owner.end() == ErrorCode.producer_fenced.value
    other = producer_of(wire, answer)
    assert (await other.send(other.batch(b"y")))[0] == ErrorCode.invalid_txn_state.value
    other.sequences.clear()
    assert await stable(wire, topic) == 0
    assert await other.end(commit=commit) == 0
    fetched = await wire.fetch(topic, isolation_level=1)
    assert fetched.last_stable_offset == 2
    assert len(fetched.aborted_transactions or ()) == (0 if commit else 1)
    assert ongoing(await init(wire, keep=True)) == (-1, -1)


async def test_what_admin_clients_see(wire: Wire) -> None:
    await wire.create_topic("t")
    first = await init(wire)
    await producer_of(wire, first).write(b"x")
    for _ in range(2):
        state = await described(wire, ID)
        assert (state.transaction_state, state.transaction_timeout_ms) == ("Ongoing", INFINITE_MS)
        assert (state.producer_id, state.producer_epoch) == identity(first)
        assert await listed(wire, state_filters=["Ongoing"]) == [(ID, "Ongoing")]
        await init(wire, keep=True)


async def test_its_own_producer_prepares_it(wire: Wire) -> None:
    """Not before that it needs the permission for two-phase commits, and it may time out until then."""
    topic = await wire.create_topic("t")
    first = await init(wire, enable=False)
    await producer_of(wire, first).write(b"x")
    prepared = await init(wire, keep=True, producer=identity(first))
    assert ongoing(prepared) == identity(first)
    assert (await described(wire, ID)).transaction_timeout_ms == INFINITE_MS
    assert await producer_of(wire, prepared).end() == 0
    assert await stable(wire, topic) == 2


async def test_what_is_refused(wire: Wire) -> None:
    assert (await init(wire, id=None)).error_code is ErrorCode.invalid_request
    assert (await init(wire, id=None, enable=False, keep=True)).error_code is ErrorCode.invalid_request
    assert (await init(wire, id="")).error_code is ErrorCode.invalid_request
    too_long = await init(wire, enable=False, keep=True, timeout=10**6)
    assert too_long.error_code is ErrorCode.invalid_transaction_timeout


async def test_it_is_off_by_default() -> None:
    async with AsyncBroker() as broker, Wire(broker.kafka) as wire:
        await wire.create_topic("t")
        answer = await init(wire)
        assert answer.error_code is ErrorCode.transactional_id_authorization_failed
        assert (await init(wire, keep=True)).error_code is answer.error_code
        first = await init(wire, enable=False)
        await producer_of(wire, first).write(b"x")
        kept = await init(wire, enable=False, keep=True)
        assert ongoing(kept) == identity(first), "this needs no setting, and its timeout goes on"
        assert (await described(wire, ID)).transaction_timeout_ms == 60_000


@pytest.mark.parametrize("enabled", [True, False])
async def test_clients_see_the_setting(enabled: bool) -> None:
    name = "transaction.two.phase.commit.enable"
    async with AsyncBroker(transaction_two_phase_commit_enable=enabled) as broker, Wire(broker.kafka) as wire:
        broker_resource = DescribeConfigsResource(
            resource_type=4, resource_name="1", configuration_keys=[name]
        )
        answer = await wire.ask(DescribeConfigsRequest(resources=[broker_resource]), DescribeConfigsResponse)
        [found] = answer.results[0].configs
        assert (found.name, found.value) == (name, "true" if enabled else "false")


@pytest.fixture
async def brokers() -> AsyncIterator[TwoBrokers]:
    async with two_brokers(**ALLOWED) as running:
        yield running


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize("commit", [True, False])
async def test_it_stays_prepared_while_its_scope_moves(
    brokers: TwoBrokers, newer: bool, commit: bool
) -> None:
    scope = scope_of_transactional_id(ID)
    async with (
        Wire(str(brokers.coordinator.listeners["kafka"])) as there,
        Wire(str(brokers.member.listeners["kafka"])) as here,
    ):
        topic = await there.create_topic("t")
        first = await init(there)
        owner = TransactionalWire(there, newer=newer, id=ID)
        owner.producer_id, owner.epoch = identity(first)
        await owner.write(b"x")
        late = owner.batch(b"late")
        await brokers.hold(scope, brokers.member)
        answer = await init(there, keep=True)  # relayed
        assert ongoing(answer) == identity(first)
        await brokers.hold(scope, brokers.coordinator)
        again = await init(here, keep=True)  # relayed the other way
        assert ongoing(again) == identity(first)
        assert identity(again)[1] == identity(answer)[1] + 1
        for wire in (there, here):
            owner.wire = wire
            assert (await owner.send(late))[0] != 0
        await brokers.hold(scope, brokers.member)
        other = TransactionalWire(here, newer=newer, id=ID)
        other.producer_id, other.epoch = identity(again)
        assert await stable(there, topic) == 0
        assert await other.end(commit=commit) == 0
        fetched = await there.fetch(topic, isolation_level=1)
        assert fetched.last_stable_offset == 2
        assert len(fetched.aborted_transactions or ()) == (0 if commit else 1)


async def test_an_operator_decides_by_any_broker(brokers: TwoBrokers) -> None:
    async with Wire(str(brokers.coordinator.listeners["kafka"])) as there:
        topic = await there.create_topic("t")
        await brokers.hold(scope_of_transactional_id(ID), brokers.member)
        first = await init(there)
        owner = TransactionalWire(Wire(str(brokers.member.listeners["kafka"])), newer=True, id=ID)
        async with owner.wire:
            owner.producer_id, owner.epoch = identity(first)
            await owner.write(b"x")
        assert ongoing(await init(there, keep=True)) == identity(first)
        base = f"http://{brokers.coordinator.listeners['admin']}/v1/transactions"
        async with httpx.AsyncClient(timeout=30) as http:
            [found] = (await http.get(base)).json()["items"]
            assert (found["state"], found["producer_epoch"]) == ("prepared", first.producer_epoch)
            meant = {"producer_id": first.producer_id, "producer_epoch": first.producer_epoch + 1}
            assert (await http.post(f"{base}/{ID}/commit", params=meant)).status_code == 409
            meant["producer_epoch"] -= 1
            decided = await http.post(f"{base}/{ID}/commit", params=meant)
            assert (decided.status_code, decided.json()["state"]) == (200, "committed")
        assert await stable(there, topic) == 2
