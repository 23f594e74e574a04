"""Transactions, which are ended by the broker that coordinates their id, wherever that is now."""

import time
from collections.abc import Sequence

from bench.cluster.coordinators import NotNow, connected_to_coordinator
from posthouse.client.connection import BrokerConnection
from posthouse.client.errors import ClientError
from posthouse.protocols.kafka.codec.generated.end_txn import EndTxnRequest, EndTxnResponse
from posthouse.protocols.kafka.codec.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from posthouse.protocols.kafka.codec.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from posthouse.records.builder import BatchBuilder

_TRANSACTION = 1
_TIMEOUT_MS = 60_000


class Transactor:
    """A client that commits one record after the other, each in a transaction of its own."""

    def __init__(self, ports: Sequence[int], id: str, topic: bytes) -> None:
        """`ports` are those of all brokers."""
        self._ports = ports
        self._id = id
        self._topic = topic
        self._connection: BrokerConnection | None = None
        self._producer = self._epoch = -1

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def commit(self, number: int) -> None:
        """Raises NotNow, ClientError, and then asks for the coordinator and begins anew, which aborts what
        was left open."""
        try:
            connection = self._connection or self._begun()
            self._write(connection)
            self._end(connection)
        except (NotNow, ClientError):
            self.close()
            raise

    def _begun(self) -> BrokerConnection:
        connection = connected_to_coordinator(self._ports, self._id, _TRANSACTION)
        self._connection = connection
        request = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=_TIMEOUT_MS)
        answer = connection.ask(request, InitProducerIdResponse)
        if answer.error_code:
            raise NotNow(f"a producer was not begun: error {answer.error_code}")
        self._producer, self._epoch = answer.producer_id, answer.producer_epoch
        return connection

    def _write(self, connection: BrokerConnection) -> None:
        builder = BatchBuilder(
            producer_id=self._producer, producer_epoch=self._epoch, base_sequence=0, transactional=True
        )
        builder.add(None, b"steady", (), time.time_ns() // 1_000_000)
        data = PartitionProduceData(index=0, records=memoryview(builder.build()))
        topics = [TopicProduceData(topic_id=self._topic, partition_data=[data])]
        request = ProduceRequest(
            transactional_id=self._id, acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=topics
        )
        answer = connection.ask(request, ProduceResponse)
        if code := answer.responses[0].partition_responses[0].error_code:
            raise NotNow(f"a batch was not acknowledged: error {code}")

    def _end(self, connection: BrokerConnection) -> None:
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer,
            producer_epoch=self._epoch,
            committed=True,
        )
        answer = connection.ask(request, EndTxnResponse)
        if answer.error_code:
            raise NotNow(f"a transaction was not committed: error {answer.error_code}")
        # Each transaction has an epoch of its own, so its sequences begin with 0.
        self._producer, self._epoch = answer.producer_id, answer.producer_epoch
