"""Tasks of the sink without Spark around them, so that everything can happen at the worst moment."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'")

import pyarrow as pa

from posthouse.client import Client
from posthouse.client.cluster import Cluster
from posthouse.client.errors import ProducerFenced
from posthouse.client.together import abort_together, commit_together
from posthouse.settings import Address
from posthouse.spark.errors import StaleEpoch
from posthouse.spark.sink_options import SinkOptions
from posthouse.spark.sink_task import TaskCommit, TaskWriter, write_in_transaction, write_plainly
from posthouse.testing import ThreadBroker, running_broker

NAME = "query"


class Job:
    """A driver that does by hand what Spark would do."""

    def __init__(self, address: str) -> None:
        self.options = SinkOptions.parse({"kafka.bootstrap.servers": address, "topic": "t"})
        self.cluster = Cluster(address, timeout=10)
        self.client = Client(address)

    def close(self) -> None:
        self.cluster.close()
        self.client.close()

    def write(
        self, batches: Iterator[pa.RecordBatch], epoch: int = 0, *, task: int = 0, attempt: int = 0
    ) -> TaskCommit:
        writer = TaskWriter(name=NAME, sequence=epoch, partition=task, attempt=attempt)
        return write_in_transaction(self.options, writer, batches)

    def commit(self, epoch: int, *written: TaskCommit) -> bool:
        members = [each.member for each in written if each.member is not None]
        return commit_together(self.cluster, NAME, epoch, members).is_new

    def values(self) -> list[bytes]:
        return sorted(message.value or b"" for message in self.client.messages("t"))


@pytest.fixture
def job(broker: ThreadBroker) -> Iterator[Job]:
    made = Job(broker.kafka)
    made.client.create_topic("t", partitions=2)
    yield made
    made.close()


def rows(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary())})


def open_transactions(broker: ThreadBroker) -> list[str]:
    return sorted(each.id for each in broker.broker.app.broker.transactions.ids.open())


def test_tasks_without_rows_need_no_transaction(job: Job, broker: ThreadBroker) -> None:
    empty = [job.write(iter([])), job.write(iter([rows()]), task=1)]
    assert empty == [TaskCommit(name=NAME)] * 2
    assert not broker.broker.app.broker.transactions.ids.all()
    assert job.commit(0, *empty)
    assert job.write(iter([rows(b"a")])) == TaskCommit(name=NAME, was_committed=True), (
        "not even that is repeated"
    )


def test_two_attempts_at_once(job: Job, broker: ThreadBroker) -> None:
    accepted: list[TaskCommit] = []

    def slow() -> Iterator[pa.RecordBatch]:
        yield rows(b"a")
        accepted.append(job.write(iter([rows(b"a"), rows(b"b")]), attempt=1))
        yield rows(b"b")

    other = job.write(slow())
    assert other.member is not None, "one does not stop the other"
    assert open_transactions(broker) == ["query/0.0", "query/0.1"]
    assert job.commit(0, *accepted)
    assert (job.values(), open_transactions(broker)) == ([b"a", b"b"], [])


def test_an_attempt_that_goes_on_after_the_commit(job: Job, broker: ThreadBroker) -> None:
    def late() -> Iterator[pa.RecordBatch]:
        yield rows(b"a")
        assert job.commit(0, job.write(iter([rows(b"a")]), attempt=1))
        yield rows(b"b")

    with pytest.raises(ProducerFenced):
        job.write(late())
    assert (job.values(), open_transactions(broker)) == ([b"a"], [])


def test_an_attempt_that_begins_just_after_the_commit(job: Job, broker: ThreadBroker) -> None:
    """It has asked before the commit, so only asking again shows it."""

    def late() -> Iterator[pa.RecordBatch]:
        assert job.commit(0, job.write(iter([rows(b"a")]), attempt=1))
        yield rows(b"a")

    assert job.write(late()).was_committed
    assert (job.values(), open_transactions(broker)) == ([b"a"], [])


def test_an_epoch_that_is_behind(job: Job) -> None:
    assert job.commit(3, job.write(iter([rows(b"a")]), 3))

    def unread() -> Iterator[pa.RecordBatch]:
        raise AssertionError("its rows need not be computed again")
        yield

    assert job.write(unread(), 3).was_committed
    with pytest.raises(StaleEpoch, match="epoch 2 of 'query' is to be written, but 3 was committed"):
        job.write(iter([rows(b"b")]), 2)


def test_input_that_fails_is_given_up_at_once(job: Job, broker: ThreadBroker) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        while not open_transactions(broker):
            yield rows(b"a" * 100_000)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        job.write(failing())
    assert (job.values(), open_transactions(broker)) == ([], [])


def test_an_aborted_job(job: Job, broker: ThreadBroker) -> None:
    written = job.write(iter([rows(b"a")]))
    abort_together(job.cluster, NAME, 0, None)
    assert open_transactions(broker) == []
    with pytest.raises(ProducerFenced):
        job.commit(0, written)
    assert job.commit(0, job.write(iter([rows(b"b")])))
    assert job.values() == [b"b"]


def test_at_least_once_is_visible_at_once(job: Job, broker: ThreadBroker) -> None:
    assert write_plainly(job.options, 0, iter([rows(b"a"), rows(b"b"), rows()])) == TaskCommit(rows=2)
    assert job.values() == [b"a", b"b"]
    assert {message.partition for message in job.client.messages("t")} == {0, 1}, "batches take turns"
    assert not broker.broker.app.broker.transactions.ids.all()


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_broker_that_restarts_between_two_batches(tmp_path: Path, delivery: str) -> None:
    broker = running_broker(data=tmp_path)
    broker.start()
    address = broker.kafka
    job = Job(address)
    job.client.create_topic("t", partitions=2)
    again = running_broker(data=tmp_path, kafka=Address.parse(address))

    def input() -> Iterator[pa.RecordBatch]:
        yield rows(*(b"%03d" % number for number in range(100)))
        broker.stop()
        again.start()
        yield rows(*(b"%03d" % number for number in range(100, 200)))

    try:
        if delivery == "exactly-once":
            assert job.commit(0, job.write(input()))
        else:
            write_plainly(job.options, 0, input())
        job.client.close()
        assert job.values() == [b"%03d" % number for number in range(200)]
    finally:
        job.close()
        broker.stop()
        again.stop()
