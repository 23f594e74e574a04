"""What administrators see of transactions, and how they end one that hangs."""

import pytest

from posthouse.protocols.kafka.codec.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from posthouse.protocols.kafka.codec.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from posthouse.protocols.kafka.codec.generated.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from posthouse.protocols.kafka.codec.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.records.batch import parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.storage.operations import Append
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.transactional_wire import TransactionalWire
from tests.protocols.kafka.wire import Wire


@pytest.fixture
async def topic(wire: Wire) -> bytes:
    return await wire.create_topic("t", 2)


@pytest.fixture(params=[False, True], ids=["older", "newer"])
async def producer(request: pytest.FixtureRequest, wire: Wire, topic: bytes) -> TransactionalWire:
    made = TransactionalWire(wire, newer=request.param, id="mine")
    await made.init(timeout=30)
    return made


async def described(wire: Wire, id: str = "mine") -> TransactionState:
    request = DescribeTransactionsRequest(transactional_ids=[id])
    [state] = (await wire.ask(request, DescribeTransactionsResponse)).transaction_states
    return state


async def listed(wire: Wire, **filters: object) -> list[tuple[str, str]]:
    answer = await wire.ask(ListTransactionsRequest(**filters), ListTransactionsResponse)  # type: ignore[arg-type]
    assert answer.error_code == 0
    return [(each.transactional_id, each.transaction_state) for each in answer.transaction_states]


async def producers(wire: Wire, partition: int = 0) -> PartitionResponse:
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[partition])])
    return (await wire.ask(request, DescribeProducersResponse)).topics[0].partitions[0]


async def write_marker(
    wire: Wire, producer_id: int, epoch: int, *, commit: bool = False, partition: int = 0
) -> int:
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[partition])],
    )
    answer = await wire.ask(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
    return answer.markers[0].topics[0].partitions[0].error_code


async def test_describe(wire: Wire, producer: TransactionalWire) -> None:
    state = await described(wire)
    assert (state.error_code, state.transaction_state, state.transaction_timeout_ms) == (0, "Empty", 30_000)
    assert (state.producer_id, state.producer_epoch) == (producer.producer_id, producer.epoch)
    await producer.write(b"a", partition=1)
    await producer.write(b"a")
    state = await described(wire)
    assert (state.transaction_state, [(each.topic, each.partitions) for each in state.topics]) == (
        "Ongoing",
        [("t", [0, 1])],
    )
    assert state.transaction_start_time_ms > 0
    await producer.end()
    state = await described(wire)
    assert (state.transaction_state, state.topics) == ("CompleteCommit", [])
    await producer.write(b"a")
    await producer.end(commit=False)
    assert (await described(wire)).transaction_state == "CompleteAbort"
    assert (await described(wire, "unknown")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_list(wire: Wire, producer: TransactionalWire) -> None:
    idle = TransactionalWire(wire, newer=False, id="idle")
    await idle.init()
    await producer.write(b"a")
    both = [("mine", "Ongoing"), ("idle", "Empty")]
    assert await listed(wire) == both
    assert await listed(wire, state_filters=["Ongoing", "Dead"]) == both[:1]
    assert await listed(wire, producer_id_filters=[idle.producer_id]) == both[1:]
    assert await listed(wire, duration_filter=0, state_filters=["Empty"]) == []
    assert await listed(wire, duration_filter=3_600_000) == []
    assert await listed(wire, transactional_id_pattern="id.*") == both[1:]
    answer = await wire.ask(ListTransactionsRequest(state_filters=["Lost"]), ListTransactionsResponse)
    assert answer.unknown_state_filters == ["Lost"]
    refused = await wire.ask(ListTransactionsRequest(transactional_id_pattern="("), ListTransactionsResponse)
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_producers(wire: Wire, producer: TransactionalWire) -> None:
    await producer.write(b"a", b"b")
    [found] = (await producers(wire)).active_producers
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch)
    assert (found.last_sequence, found.current_txn_start_offset) == (1, 0)
    await producer.end()
    [found] = (await producers(wire)).active_producers
    assert found.current_txn_start_offset == -1
    assert (await producers(wire, 1)).active_producers == []
    assert (await producers(wire, 9)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_giving_up_a_transaction_gives_up_all_of_it(
    wire: Wire, topic: bytes, producer: TransactionalWire
) -> None:
    await producer.write(b"a")
    await producer.write(b"b", partition=1)
    assert await write_marker(wire, producer.producer_id, producer.epoch) == 0
    assert (await described(wire)).transaction_state == "CompleteAbort"
    assert (await wire.fetch(topic, isolation_level=1)).last_stable_offset == 2
    assert await producer.end() == ErrorCode.PRODUCER_FENCED


async def test_nobody_commits_from_outside(wire: Wire, producer: TransactionalWire) -> None:
    await producer.write(b"a")
    answer = await write_marker(wire, producer.producer_id, producer.epoch, commit=True)
    assert answer == ErrorCode.INVALID_TXN_STATE
    assert await write_marker(wire, producer.producer_id, producer.epoch + 1) == 47
    assert await write_marker(wire, producer.producer_id, 0, partition=9) == 3
    assert (await described(wire)).transaction_state == "Ongoing"


async def test_one_that_no_transaction_knows_of(broker: AsyncBroker, wire: Wire, topic: bytes) -> None:
    """It cannot come about here; but files may come from elsewhere."""
    builder = BatchBuilder(producer_id=999, producer_epoch=3, base_sequence=0, transactional=True)
    builder.add(None, b"x")
    records = memoryview(builder.build())
    partition = broker.app.broker.topic("t").partition(0)
    await broker.app.broker._storage.commit([Append(partition, records, parse_header(records))])
    assert (await wire.fetch(topic, isolation_level=1)).last_stable_offset == 0
    assert await write_marker(wire, 999, 2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await write_marker(wire, 999, 3) == 0
    answer = await wire.fetch(topic, isolation_level=1)
    assert (answer.last_stable_offset, len(answer.aborted_transactions or [])) == (2, 1)
    assert await write_marker(wire, 999, 3) == 0, "nothing is left to do"
    assert (await wire.fetch(topic)).high_watermark == 2
