"""Transactions in objects: rows are those of a broker, however a log is cut into segments and tasks."""

from random import Random

import pytest
from confluent_kafka import Producer

from posthouse.client import Client
from tests.spark.segments.clusters import Cluster
from tests.spark.segments.queries import rows_of

ISOLATION = "kafka.isolation.level"


class Writer:
    """A producer with one transaction after the other."""

    def __init__(self, address: str, name: str, random: Random) -> None:
        self._random = random
        self._producer = Producer(
            {"bootstrap.servers": address, "transactional.id": name, "transaction.timeout.ms": 60_000}
        )
        self._producer.init_transactions(30)
        self._is_open = False
        self._number = 0
        self._name = name

    def step(self) -> None:
        """Write a batch or two, or end the transaction."""
        if not self._is_open:
            self._producer.begin_transaction()
            self._is_open = True
        elif self._random.random() < 0.4:
            self.end()
            return
        for _ in range(self._random.randint(1, 3)):
            self._number += 1
            self._producer.produce("orders", f"{self._name} {self._number}".encode(), partition=0)
        self._producer.flush(30)

    def end(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        if self._random.random() < 0.5:
            self._producer.commit_transaction(30)
        else:
            self._producer.abort_transaction(30)


@pytest.mark.parametrize("seed", range(3))
def test_every_cut(seed: int, cluster: Cluster, client: Client) -> None:
    random = Random(seed)
    client.create_topic("orders", partitions=1)
    writers = [Writer(cluster.broker.kafka, f"writer-{number}", random) for number in range(3)]
    for step in range(60):
        random.choice(writers).step()
        if step % 12 == 11:
            cluster.consolidate(segment_bytes=random.randint(200, 2000))
    for is_over in (False, True):  # first with open transactions
        if is_over:
            for writer in writers:
                writer.end()
            cluster.consolidate(segment_bytes=random.randint(200, 2000))
        for isolation in ("read_committed", "read_uncommitted"):
            expected = rows_of(cluster, readObjects="false", **{ISOLATION: isolation})
            assert len(expected) > 20
            for pieces in (1, 2, 5, 13):
                cluster.objects.gets.clear()
                found = rows_of(cluster, minPartitions=str(pieces), **{ISOLATION: isolation})
                assert found == expected
                assert cluster.objects.gets, "objects were read"
