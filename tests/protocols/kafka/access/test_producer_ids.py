"""An idempotent producer is its user's own: somebody else who may write to its topic cannot speak for it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posthouse.broker.access.operations import Kind, Operation
from posthouse.model.ids import FIRST_BOUND, FIRST_KEYED
from posthouse.protocols.kafka.codec.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.access.scene import connected, permit, secured
from tests.protocols.kafka.wire import Wire, batch_of

TAKEN, FOREIGN = ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def new_producer(wire: Wire) -> int:
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=0, producer_id=-1, producer_epoch=-1
    )
    answer = await wire.ask(request, InitProducerIdResponse)
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    return answer.producer_id


async def prepared(broker: AsyncBroker) -> None:
    for user in ("victim", "mallory"):
        await permit(broker.app.broker, user, Operation.WRITE, Kind.TOPIC, "t")
    async with connected(broker, "admin") as wire:
        await wire.create_topic("t")


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[AsyncBroker]:
    async with secured(tmp_path) as made:
        await prepared(made)
        yield made


async def code(wire: Wire, broker: AsyncBroker, batch: bytearray) -> int:
    topic = broker.app.broker.topic("t")
    return (await wire.produce(topic.id, batch)).error_code


@pytest.mark.parametrize(("epoch", "sequence"), [(0, 0), (0, 1), (1, 0), (32_767, 0)])
async def test_nobody_else_speaks_for_a_producer(broker: AsyncBroker, epoch: int, sequence: int) -> None:
    """With a higher epoch it would be locked out, with its next sequence its own batch would be dropped."""
    async with connected(broker, "victim") as victim, connected(broker, "mallory") as mallory:
        id = await new_producer(victim)
        assert await code(victim, broker, batch_of(id)) == TAKEN
        assert await code(mallory, broker, batch_of(id, sequence, epoch=epoch)) == FOREIGN
        assert await code(victim, broker, batch_of(id, 1)) == TAKEN
        topic = broker.app.broker.topic("t")
        assert broker.app.broker.bounds(topic, 0).end == 2
        own = await new_producer(mallory)
        assert await code(mallory, broker, batch_of(own)) == TAKEN


async def test_nobody_takes_an_id_before_it_is_given_out(broker: AsyncBroker) -> None:
    async with connected(broker, "victim") as victim, connected(broker, "mallory") as mallory:
        seen = await new_producer(mallory)
        for ahead in range(1, 20):
            guessed = seen + (ahead << 24)
            assert await code(mallory, broker, batch_of(guessed, epoch=32_767)) == FOREIGN
            assert await code(victim, broker, batch_of(await new_producer(victim))) == TAKEN


@pytest.mark.parametrize("id", [FIRST_KEYED, FIRST_KEYED + 4711, FIRST_BOUND - 1])
async def test_ids_of_idempotency_keys_are_no_clients(broker: AsyncBroker, id: int) -> None:
    async with connected(broker, "victim") as wire:
        assert await code(wire, broker, batch_of(id)) == FOREIGN
        assert await code(wire, broker, batch_of(FIRST_KEYED - 1)) == TAKEN, "from a time without logins"


async def test_an_epoch_that_a_client_raised_by_itself(broker: AsyncBroker) -> None:
    """Java's producer does, after an error."""
    async with connected(broker, "victim") as wire:
        id = await new_producer(wire)
        assert await code(wire, broker, batch_of(id)) == TAKEN
        assert await code(wire, broker, batch_of(id, epoch=1)) == TAKEN
        assert await code(wire, broker, batch_of(id, epoch=7)) == TAKEN


async def test_whoever_may_act_for_the_cluster_copies_batches_of_others(broker: AsyncBroker) -> None:
    async with connected(broker, "victim") as victim, connected(broker, "admin") as admin:
        assert await code(admin, broker, batch_of(await new_producer(victim))) == TAKEN


async def test_it_survives_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with secured(tmp_path, data=data) as broker:
        await prepared(broker)
        async with connected(broker, "victim") as victim:
            id = await new_producer(victim)
            assert await code(victim, broker, batch_of(id)) == TAKEN
    async with (
        secured(tmp_path, data=data) as broker,
        connected(broker, "victim") as victim,
        connected(broker, "mallory") as mallory,
    ):
        assert await code(mallory, broker, batch_of(id, epoch=9)) == FOREIGN
        assert await code(victim, broker, batch_of(id, 1)) == TAKEN
    told = [json.loads(line) for line in (data / "audit.log").read_text().splitlines()]
    assert ("User:mallory", f"producer-id:{id}") in {
        (each["principal"], each["resource"]) for each in told if not each["allowed"]
    }


async def test_ids_from_a_time_without_logins_stay_good(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with AsyncBroker(data=data) as open_broker, Wire(open_broker.kafka) as wire:
        await wire.create_topic("t")
        id = await new_producer(wire)
        assert id < FIRST_BOUND
        assert await code(wire, open_broker, batch_of(id)) == TAKEN
    async with secured(tmp_path, data=data) as broker:
        await permit(broker.app.broker, "victim", Operation.WRITE, Kind.TOPIC, "t")
        async with connected(broker, "victim") as wire:
            assert await code(wire, broker, batch_of(id, 1)) == TAKEN
