"""A member beside the coordinator, on one log: each serves what the other one has written."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from posthouse.app import App
from posthouse.model.errors import StorageFenced
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.scopes import scope_of_transactional_id
from posthouse.protocols.kafka.codec.generated.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from posthouse.protocols.kafka.codec.generated.fetch import FetchResponse
from posthouse.protocols.kafka.codec.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from posthouse.protocols.kafka.codec.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from posthouse.protocols.kafka.codec.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from posthouse.protocols.kafka.codec.generated.produce import ProduceResponse
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.storage.spaces import Space
from tests.broker.members import MemberStorage
from tests.protocols.kafka.members import coordinator_and_member
from tests.protocols.kafka.transactional_wire import TransactionalWire
from tests.protocols.kafka.wire import Wire, batch, batch_of, fetch_request, produce_request

Apps = tuple[App, App, MemberStorage]


@pytest.fixture
async def apps() -> AsyncIterator[Apps]:
    async with coordinator_and_member() as running:
        yield running


@pytest.fixture
async def there(apps: Apps) -> AsyncIterator[Wire]:
    """A client of the coordinator."""
    async with Wire(str(apps[0].listeners["kafka"])) as connected:
        yield connected


@pytest.fixture
async def wire(apps: Apps) -> AsyncIterator[Wire]:
    """A client of the member."""
    async with Wire(str(apps[1].listeners["kafka"])) as connected:
        yield connected


async def _end(wire: Wire, name: str = "t") -> ListOffsetsPartitionResponse:
    partition = ListOffsetsPartition(timestamp=-1)
    response = await wire.ask(
        ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=[partition])]), ListOffsetsResponse
    )
    return response.topics[0].partitions[0]


def _produced(answer: object) -> tuple[int, int]:
    """Error and offset."""
    assert isinstance(answer, ProduceResponse)
    [partition] = answer.responses[0].partition_responses
    return partition.error_code, partition.base_offset


async def _described(wire: Wire, *, create: bool, name: str = "t") -> MetadataResponseTopic:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=create)
    return (await wire.ask(asked, MetadataResponse)).topics[0]


async def test_a_topic_that_a_client_of_the_member_creates(there: Wire, wire: Wire) -> None:
    topic = await wire.create_topic("t", 3)
    assert (await _described(wire, create=False)).topic_id == topic
    assert (await _described(there, create=False)).topic_id == topic


async def test_a_topic_that_metadata_creates(there: Wire, wire: Wire) -> None:
    created = await _described(wire, create=True)
    assert created.error_code == 0
    assert (await _described(there, create=False)).topic_id == created.topic_id


async def test_topics_that_the_member_does_not_know_yet(there: Wire, wire: Wire) -> None:
    for number in range(5):
        await there.create_topic(str(number))
    assert (await _described(wire, create=False, name="0")).error_code == 0
    topic = await there.create_topic("a")
    assert (await wire.produce(topic, batch(b"x"))).base_offset == 0
    topic = await there.create_topic("b")
    assert (await wire.fetch(topic)).error_code == 0
    await there.create_topic("c")
    assert (await _end(wire, "c")).offset == 0
    await there.create_topic("d")
    described = await wire.ask(
        DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name="d"), TopicRequest(name="e")], response_partition_limit=10
        ),
        DescribeTopicPartitionsResponse,
    )
    codes = {each.name: each.error_code for each in described.topics}
    assert codes == {"d": 0, "e": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_batches_for_a_topic_that_the_member_looks_for_stay_in_order(there: Wire, wire: Wire) -> None:
    topic = await there.create_topic("t")
    pending = [wire.send(produce_request(topic, batch(str(number).encode()))) for number in range(5)]
    for number, each in enumerate(pending):
        response = await wire.receive(each)
        assert isinstance(response, ProduceResponse)
        assert response.responses[0].partition_responses[0].base_offset == number


async def test_no_batch_is_taken_without_the_first_one_of_its_producer(
    apps: Apps, there: Wire, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is away while the member looks for the topic of the first batch, and then is back."""
    _, member, storage = apps
    topic = await there.create_topic("t")
    refresh = storage.refresh_definitions

    async def fail_once() -> None:
        monkeypatch.setattr(storage, "refresh_definitions", refresh)
        raise StorageFenced("the database is away")

    monkeypatch.setattr(storage, "refresh_definitions", fail_once)
    pipelined = [produce_request(topic, batch_of(7, sequence)) for sequence in range(3)]
    for request in pipelined:
        wire.send(request)
    assert await asyncio.wait_for(wire.reader.read(1), 30) == b""
    async with Wire(str(member.listeners["kafka"])) as again:
        answers = [await again.receive(each) for each in [again.send(request) for request in pipelined]]
    assert [_produced(each) for each in answers] == [(0, offset) for offset in range(3)]


async def test_topics_that_no_broker_knows(apps: Apps, wire: Wire) -> None:
    unknown = bytes(range(16))
    assert (await wire.produce(unknown, batch(b"x"))).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (await wire.fetch(unknown)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (await _end(wire)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await _described(wire, create=False)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert apps[2].refreshes == 4
    wire.send(produce_request(unknown, batch(b"x"), acks=0))
    assert await wire.reader.read() == b""


async def test_a_fetch_looks_for_unknown_topics_once(apps: Apps, wire: Wire) -> None:
    unknown = [(bytes([number]) * 16, 0, 0) for number in range(1, 6)]
    response = await wire.ask(fetch_request(*unknown), FetchResponse)
    codes = [each.partitions[0].error_code for each in response.responses]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_ID] * 5
    assert apps[2].refreshes == 1


async def test_records_of_the_other_broker(there: Wire, wire: Wire) -> None:
    topic = await there.create_topic("t")
    await wire.produce(topic, batch(b"a"))
    await there.produce(topic, batch(b"b", b"c"))
    await there.produce(topic, batch(b"d"))
    assert (await wire.fetch(topic, 3)).high_watermark == 4  # above the end that the member knew
    assert (await wire.fetch(topic, 5)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    await there.produce(topic, batch(b"e"))
    assert (await _end(wire)).offset == 5
    await there.produce(topic, batch(b"f"))
    ends = await wire.ask(
        OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition()])]
        ),
        OffsetForLeaderEpochResponse,
    )
    assert ends.topics[0].partitions[0].end_offset == 6
    await wire.produce(topic, batch(b"g"))
    assert (await there.fetch(topic, 6)).records


async def test_storage_is_told_of_partitions_at_their_end_while_others_have_records(
    apps: Apps, there: Wire, wire: Wire
) -> None:
    """The coordinator may write there. A fetch that always finds records elsewhere never waits for them."""
    topic = TopicId(await there.create_topic("t", partitions=3))
    await wire.produce(topic, batch(b"a"), partition=1)
    apps[2].watched.clear()
    request = fetch_request(*((topic, index, 0) for index in range(3)), min_bytes=1, max_wait_ms=60_000)
    answer = await wire.ask(request, FetchResponse)
    assert [bool(each.partitions[0].records) for each in answer.responses] == [False, True, False]
    assert {PartitionId(topic, index) for index in (0, 2)} <= apps[2].watched


async def test_nothing_is_called_unknown_while_the_database_is_away(
    apps: Apps, there: Wire, wire: Wire
) -> None:
    topic = await wire.create_topic("t")
    assert (await wire.produce(topic, batch(b"x"))).error_code == 0
    new = await there.create_topic("new")
    apps[2].failure = StorageFenced("the database is away")
    refused = ErrorCode.KAFKA_STORAGE_ERROR
    assert (await wire.produce(new, batch(b"x"))).error_code == refused
    assert (await wire.fetch(new)).error_code == refused
    assert (await wire.fetch(topic, 2)).error_code == refused
    assert (await _end(wire)).error_code == refused
    assert (await _described(wire, create=True, name="new")).error_code == refused
    assert (await wire.fetch(topic, 0)).records
    apps[2].failure = None
    assert (await wire.produce(new, batch(b"x"))).error_code == 0


async def test_no_partition_of_a_fetch_is_called_unknown_or_out_of_range_while_the_database_is_away(
    apps: Apps, there: Wire, wire: Wire
) -> None:
    known = [await wire.create_topic(name) for name in ("a", "b", "c")]
    assert (await _described(wire, create=False, name="c")).error_code == 0
    for topic in known:
        assert (await there.produce(topic, batch(b"x", b"y"))).error_code == 0
    new = [await there.create_topic(name) for name in ("d", "e")]
    apps[2].failure = StorageFenced("the database is away")
    asked = fetch_request(*((topic, 0, 2) for topic in known), *((topic, 0, 0) for topic in new))
    response = await wire.ask(asked, FetchResponse)
    codes = [each.partitions[0].error_code for each in response.responses]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 5


@pytest.mark.parametrize("newer", [False, True])
async def test_transactions_of_a_client_of_the_member(
    newer: bool, apps: Apps, there: Wire, wire: Wire
) -> None:
    topic = await there.create_topic("t")
    producer = TransactionalWire(wire, newer=newer, coordinator=None if newer else there)
    assert await producer.init() == 0
    for commit in (True, False, True):
        await producer.write(b"x" if commit else b"dropped")
        assert await producer.end(commit=commit) == 0
    assert (await _end(wire)).offset == 6
    fetched = await wire.fetch(topic, isolation_level=1, max_bytes=2**20)
    assert fetched.last_stable_offset == 6
    assert fetched.aborted_transactions is not None
    assert [(each.producer_id, each.first_offset) for each in fetched.aborted_transactions] == [
        (producer.producer_id, 2)
    ]


def _written(app: App, topic: str = "t") -> int:
    """Records that this broker has appended."""
    return app.broker.traffic.of(topic).records_in


@pytest.mark.parametrize("newer", [False, True])
async def test_the_member_itself_takes_batches_of_a_partition_that_is_admitted(
    newer: bool, apps: Apps, there: Wire, wire: Wire
) -> None:
    coordinator, member, _ = apps
    await there.create_topic("t")
    producer = TransactionalWire(wire, newer=newer, coordinator=None if newer else there)
    assert await producer.init() == 0
    for _ in range(3):
        for value in (b"a", b"b", b"c"):
            await producer.write(value)
        assert await producer.end() == 0
    # A newer client adds a partition by writing to it: the first batch of each transaction goes the long way.
    assert _written(member) == (6 if newer else 9)
    assert _written(coordinator) == (3 if newer else 0)


async def test_a_client_that_keeps_its_epoch_after_an_abort_writes_through_the_coordinator(
    apps: Apps, there: Wire, wire: Wire
) -> None:
    coordinator, member, _ = apps
    await there.create_topic("t")
    producer = TransactionalWire(wire, newer=False, coordinator=there)
    assert await producer.init() == 0
    await producer.write(b"a")
    late = producer.batch(b"late")
    assert await producer.end(commit=False) == 0
    assert (await producer.send(late))[0] == ErrorCode.INVALID_TXN_STATE
    producer.sequences[0] -= 1
    await producer.write(b"b")
    assert await producer.end() == 0
    assert (_written(member), _written(coordinator)) == (1, 1)
    assert await producer.init(keep=True) == 0
    await producer.write(b"c")
    assert await producer.end() == 0
    assert (_written(member), _written(coordinator)) == (2, 1)


async def test_batches_of_an_ended_transaction_are_taken_by_neither(
    apps: Apps, there: Wire, wire: Wire
) -> None:
    topic = await there.create_topic("t")
    producer = TransactionalWire(wire, newer=True)
    assert await producer.init() == 0
    await producer.write(b"a")
    late = producer.batch(b"late")
    assert await producer.end() == 0
    code, _ = await producer.send(late)
    assert code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert b"late" not in bytes((await there.fetch(topic, max_bytes=2**20)).records or b"")


async def test_the_next_holder_goes_on_with_an_open_transaction(apps: Apps, there: Wire, wire: Wire) -> None:
    """It knows which admissions are stored, and removes them with the end."""
    coordinator, member, storage = apps
    await there.create_topic("t")
    producer = TransactionalWire(wire, newer=False, coordinator=there)
    assert await producer.init() == 0
    await producer.write(b"a")
    assert storage._state[Space.ADMISSIONS]
    await storage.scopes.move(scope_of_transactional_id(producer.id), member.broker)
    producer.coordinator = wire
    transaction = member.broker.transactions.get(producer.id)
    assert transaction.work is not None and not transaction.may_be_shared
    assert transaction.work.admitted == transaction.work.partitions
    assert not coordinator.broker.transactions.ids.all()
    assert await producer.end() == 0
    assert storage._state[Space.ADMISSIONS] == {}
    assert member.broker.transactions.get(producer.id).work is None


async def test_older_clients_look_for_the_coordinator_of_their_id(there: Wire, wire: Wire) -> None:
    """Their requests have an order, which a broker in between would hide."""
    await there.create_topic("t")
    producer = TransactionalWire(wire, newer=False)
    assert await producer.init() == 0
    assert await producer.add(0) == [ErrorCode.NOT_COORDINATOR]
    assert await producer.add_group() == ErrorCode.NOT_COORDINATOR
    assert await producer.end() == ErrorCode.NOT_COORDINATOR
    producer.coordinator = there
    await producer.write(b"x")
    assert await producer.end() == 0
