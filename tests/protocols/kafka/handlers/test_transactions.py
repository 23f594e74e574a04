"""The APIs of transactions, in the versions of older and newer clients."""

import pytest

from posthouse.protocols.kafka.codec.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from posthouse.protocols.kafka.codec.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from posthouse.protocols.kafka.codec.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartitions,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.transactional_wire import TransactionalWire
from tests.protocols.kafka.wire import Wire


@pytest.fixture(params=[False, True], ids=["older", "newer"])
async def producer(request: pytest.FixtureRequest, wire: Wire) -> TransactionalWire:
    await wire.create_topic("t", 2)
    made = TransactionalWire(wire, newer=request.param)
    assert await made.init() == 0
    return made


async def committed_offset(wire: Wire, topic: bytes, group: str = "g") -> OffsetFetchResponsePartitions:
    wanted = OffsetFetchRequestTopics(topic_id=topic, partition_indexes=[0])
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])], require_stable=True
    )
    answer = await wire.ask(request, OffsetFetchResponse)
    return answer.groups[0].topics[0].partitions[0]


async def test_the_newer_protocol_is_advertised(wire: Wire) -> None:
    answer = await wire.ask(
        ApiVersionsRequest(client_software_name="a", client_software_version="1"), ApiVersionsResponse
    )
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    assert levels["transaction.version"] == 2


async def test_an_idempotent_producer_gets_a_number_of_its_own(wire: Wire) -> None:
    producers = [TransactionalWire(wire, newer=False) for _ in range(2)]
    for each in producers:
        each.id = None  # type: ignore[assignment]
        assert await each.init() == 0
        assert each.epoch == 0
    assert producers[0].producer_id != producers[1].producer_id


async def test_a_repeated_batch_gets_its_first_offset(wire: Wire) -> None:
    topic = await wire.create_topic("t")
    producer = TransactionalWire(wire, newer=False)
    producer.id = None  # type: ignore[assignment]
    await producer.init()
    first = producer.batch(b"a", b"b", transactional=False)
    second = producer.batch(b"c", transactional=False)
    assert await producer.send(first) == (0, 0)
    assert await producer.send(second) == (0, 2)
    assert await producer.send(first) == (0, 0)
    producer.sequences[0] = 9
    code, _ = await producer.send(producer.batch(b"x", transactional=False))
    assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await wire.fetch(topic)).high_watermark == 3
    producer.epoch, producer.sequences = 1, {}
    assert await producer.send(producer.batch(b"new epoch", transactional=False)) == (0, 3)
    assert await producer.send(second) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)


async def test_sequences_wrap(wire: Wire) -> None:
    await wire.create_topic("t")
    producer = TransactionalWire(wire, newer=False)
    producer.id = None  # type: ignore[assignment]
    await producer.init()
    producer.sequences[0] = 2**31 - 2
    last = producer.batch(b"a", b"b", b"c", transactional=False)
    assert await producer.send(last) == (0, 0)
    assert await producer.send(last) == (0, 0)
    producer.sequences[0] = 1
    assert await producer.send(producer.batch(b"d", transactional=False)) == (0, 3)


async def test_commit_and_abort(wire: Wire, producer: TransactionalWire) -> None:
    epoch = producer.epoch
    await producer.write(b"a")
    await producer.write(b"b", partition=1)
    assert await producer.end() == 0
    await producer.write(b"c")
    assert await producer.end(commit=False) == 0
    assert producer.epoch == (epoch + 2 if producer.newer else epoch)


async def test_offsets(wire: Wire, producer: TransactionalWire) -> None:
    topic = await wire.create_topic("input")
    producer.topic = "input"
    assert await producer.commit_offset(7) == 0
    pending = await committed_offset(wire, topic)
    assert pending.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert await producer.end() == 0
    found = await committed_offset(wire, topic)
    assert (found.error_code, found.committed_offset, found.metadata) == (0, 7, "note")
    assert await producer.commit_offset(9) == 0
    assert await producer.end(commit=False) == 0
    assert (await committed_offset(wire, topic)).committed_offset == 7


async def test_offsets_that_cannot_be_committed(producer: TransactionalWire) -> None:
    assert await producer.commit_offset(7, partition=5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await producer.send_offset(7, generation_id=3, member_id="m") == ErrorCode.ILLEGAL_GENERATION
    assert await producer.send_offset(7, group="") == ErrorCode.INVALID_GROUP_ID
    if not producer.newer:
        assert await producer.send_offset(7, group="another") == ErrorCode.INVALID_TXN_STATE
        assert await producer.add_group("") == ErrorCode.INVALID_GROUP_ID


async def test_a_batch_needs_its_partition_to_be_added(wire: Wire) -> None:
    await wire.create_topic("t", 2)
    producer = TransactionalWire(wire, newer=False)
    await producer.init()
    assert await producer.send(producer.batch(b"a")) == (ErrorCode.INVALID_TXN_STATE, -1)
    await producer.add(1)
    assert await producer.send(producer.batch(b"a")) == (ErrorCode.INVALID_TXN_STATE, -1)


async def test_partitions_are_added_all_or_none(wire: Wire) -> None:
    await wire.create_topic("t", 2)
    producer = TransactionalWire(wire, newer=False)
    await producer.init()
    codes = [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await producer.add(0, 9) == codes
    assert await producer.add(0, topic="unknown") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await producer.end() == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("versions", "code"),
    [
        ({}, ErrorCode.PRODUCER_FENCED),
        (
            {"init_producer_id": 3, "add_partitions_to_txn": 1, "add_offsets_to_txn": 1, "end_txn": 1},
            ErrorCode.INVALID_PRODUCER_EPOCH,
        ),
    ],
    ids=["who knows the word", "who does not"],
)
async def test_fenced(wire: Wire, versions: dict[str, int], code: ErrorCode) -> None:
    await wire.create_topic("t", 2)
    producer = TransactionalWire(wire, newer=False)
    await producer.init()
    producer.versions |= versions
    await producer.write(b"a")
    successor = TransactionalWire(wire, newer=False, id=producer.id)
    assert await successor.init() == 0
    assert (successor.producer_id, successor.epoch) == (producer.producer_id, producer.epoch + 1)
    assert await producer.add(1) == [code]
    assert await producer.add_group() == code
    assert await producer.end() == code
    assert await producer.init(keep=True) == code
    assert await producer.send_offset(1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await producer.send(producer.batch(b"b")) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)


async def test_wrong_in_itself(wire: Wire, producer: TransactionalWire) -> None:
    assert await producer.end() == ErrorCode.INVALID_TXN_STATE
    assert await producer.init(timeout=0) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert await producer.init(timeout=10_000) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    producer.producer_id += 500
    assert await producer.end() == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer.epoch = -1
    assert await producer.init(keep=True) == ErrorCode.INVALID_REQUEST
    producer.id = ""
    assert await producer.init() == ErrorCode.INVALID_REQUEST
    producer.id = "unknown"
    assert await producer.end() == ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_the_form_of_brokers(wire: Wire) -> None:
    """Several transactions at once, to add partitions or to ask whether they were added."""
    await wire.create_topic("t", 2)
    first, second = (TransactionalWire(wire, newer=False) for _ in range(2))
    for each in (first, second):
        await each.init()

    async def add(*, verify_only: bool, partitions: list[int]) -> list[list[int]]:
        request = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=each.id,
                    producer_id=each.producer_id,
                    producer_epoch=each.epoch,
                    verify_only=verify_only,
                    topics=[AddPartitionsToTxnTopic(name="t", partitions=partitions)],
                )
                for each in (first, second)
            ]
        )
        answer = await wire.ask(request, AddPartitionsToTxnResponse)
        assert [each.transactional_id for each in answer.results_by_transaction] == [first.id, second.id]
        return [
            [part.partition_error_code for part in each.topic_results[0].results_by_partition]
            for each in answer.results_by_transaction
        ]

    refused = ErrorCode.INVALID_TXN_STATE
    assert await add(verify_only=True, partitions=[0]) == [[refused], [refused]]
    assert await add(verify_only=False, partitions=[0]) == [[0], [0]]
    assert await add(verify_only=True, partitions=[0]) == [[0], [0]]
    assert await add(verify_only=True, partitions=[0, 1]) == [[refused] * 2, [refused] * 2]


async def time_out(broker: AsyncBroker, producer: TransactionalWire) -> None:
    """With a transaction open."""
    assert await producer.init() == 0
    await producer.write(b"late")
    transactions = broker.app.broker.transactions
    transaction = transactions.ids.find(producer.id)
    assert transaction is not None
    transaction.timeout_ms = 0
    await transactions.abort_expired()


async def test_a_newer_client_whose_transaction_took_too_long(broker: AsyncBroker, wire: Wire) -> None:
    """What Kafka 4.3.1 answers: it learns that the transaction is aborted, and goes on."""
    await wire.create_topic("t")
    producer = TransactionalWire(wire, newer=True)
    await time_out(broker, producer)
    old = producer.epoch
    assert (await producer.send(producer.batch(b"later")))[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await producer.send_offset(1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await producer.add_group() == ErrorCode.PRODUCER_FENCED
    for _ in range(2):
        assert await producer.end(commit=True) == ErrorCode.INVALID_TXN_STATE
    assert (await producer.end(commit=False), producer.epoch) == (0, old + 1)
    await producer.write(b"again")
    assert await producer.end(commit=True) == 0


@pytest.mark.parametrize("newer", [False, True], ids=["older", "newer"])
async def test_asking_for_the_next_epoch_after_a_timeout(
    newer: bool, broker: AsyncBroker, wire: Wire
) -> None:
    await wire.create_topic("t")
    producer = TransactionalWire(wire, newer=newer)
    await time_out(broker, producer)
    old = producer.epoch
    if not newer:
        assert await producer.add(0) == [ErrorCode.PRODUCER_FENCED]
        for commit in (True, False):
            assert await producer.end(commit=commit) == ErrorCode.PRODUCER_FENCED
    assert (await producer.init(keep=True), producer.epoch) == (0, old + 1)
    await producer.write(b"again")
    assert await producer.end() == 0


@pytest.mark.parametrize("newer", [False, True], ids=["older", "newer"])
async def test_after_a_timeout_another_producer_fences_as_ever(
    newer: bool, broker: AsyncBroker, wire: Wire
) -> None:
    await wire.create_topic("t")
    producer = TransactionalWire(wire, newer=newer)
    await time_out(broker, producer)
    assert await TransactionalWire(wire, newer=newer, id=producer.id).init() == 0
    assert await producer.init(keep=True) == ErrorCode.PRODUCER_FENCED
    for commit in (True, False):
        assert await producer.end(commit=commit) == ErrorCode.PRODUCER_FENCED
