"""What a reader is shown of transactions: the rule on bare batches, then over the wire."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer as TransactionalProducer

from posthouse.client import Client, Start
from posthouse.client.reading import Fetched
from posthouse.records.batch import COUNT_AT, HEADER_SIZE, LENGTH_AT, LOG_OVERHEAD, stamp
from posthouse.records.builder import BatchBuilder
from posthouse.records.control import build_marker
from posthouse.records.visibility import AbortedProducer, visible_batches
from posthouse.testing import ThreadBroker


def log(text: str, start: int = 0) -> bytes:
    """Batches as in 'a1 b2 -a plain1': two records of b's transaction at offset 1, a's abort at offset 3.

    '+a' is a's commit, '0a' a marker's batch that compaction has emptied, 'a!' a batch of a's that is in no
    transaction. Producers are named by a letter, which is their id.
    """
    data, offset = bytearray(), start
    for word in text.split():
        if word[0] in "+-0":
            batch = build_marker(ord(word[1]), 0, commit=word[0] == "+", timestamp=0)
            batch = emptied(batch) if word[0] == "0" else batch
            count = 1
        else:
            count = 1 if word.endswith("!") else int(word[-1])
            batch = records(word, count)
        stamp(batch, offset, 0)
        data += batch
        offset += count
    return bytes(data)


def records(word: str, count: int) -> bytearray:
    if word.startswith("plain"):
        builder = BatchBuilder()
    else:
        transactional = not word.endswith("!")
        builder = BatchBuilder(
            producer_id=ord(word[0]), producer_epoch=0, base_sequence=0, transactional=transactional
        )
    for _ in range(count):
        builder.add(None, word.encode(), (), 0)
    return builder.build()


def emptied(marker: bytearray) -> bytearray:
    batch = marker[:HEADER_SIZE]
    batch[LENGTH_AT : LENGTH_AT + 4] = (HEADER_SIZE - LOG_OVERHEAD).to_bytes(4, "big")
    batch[COUNT_AT : COUNT_AT + 4] = bytes(4)
    return batch


def ranges(text: str) -> list[AbortedProducer]:
    """'a0 b5': a's transaction from offset 0 on, b's from 5."""
    return [AbortedProducer(ord(word[0]), int(word[1:])) for word in text.split()]


CASES = {
    "nothing": ("", "", []),
    "no transactions": ("plain2 a! plain1", "", [0, 2, 3]),
    "committed": ("a1 a1 +a", "", [0, 1]),
    "aborted": ("a1 a1 -a plain1", "a0", [3]),
    "aborted, then committed": ("a1 -a a1 +a", "a0", [2]),
    "committed, then aborted": ("a1 +a a1 -a", "a2", [0]),
    "aborted twice": ("a1 -a a1 -a a1 +a", "a0 a2", [4]),
    "the list in another order": ("a1 -a a1 -a a1 +a", "a2 a0", [4]),
    "two at once": ("a2 b1 a1 plain1 -a b1 +b", "a0", [2, 4, 6]),
    "both aborted": ("a2 b1 a1 plain1 -a b1 -b a1", "a0 b2", [4, 8]),
    "a commit of another does not end it": ("a1 b1 +b a1 -a", "a0", [1]),
    "an abort of another does not end it": ("a1 b1 -b a1 -a", "a0 b1", []),
    "only transactional batches are dropped": ("a1 a! -a", "a0", [1]),
    "data ends before the marker": ("plain1 a1 a1", "a1", [0]),
    "an emptied marker ends nothing": ("a1 0a a1 -a", "a0", []),
    "an emptied marker of nobody": ("plain1 0a plain1", "", [0, 2]),
}


@pytest.mark.parametrize(("text", "aborted", "expected"), CASES.values(), ids=CASES)
def test_the_rule(text: str, aborted: str, expected: list[int]) -> None:
    data = log(text)
    for form in (data, memoryview(data), bytearray(data)):
        shown = [header.base_offset for _, header in visible_batches(form, ranges(aborted))]
        assert shown == expected


def test_data_that_begins_inside_a_transaction() -> None:
    data = log("a1 -a a1 +a", start=50)
    assert [header.base_offset for _, header in visible_batches(data, ranges("a7"))] == [52]


def test_positions_are_those_of_the_batches() -> None:
    data = log("a1 plain3 -a plain1")
    shown = [
        data[position : position + header.length] for position, header in visible_batches(data, ranges("a0"))
    ]
    assert shown == [log("plain3", 1), log("plain1", 5)]


def test_a_batch_that_is_cut_off_is_left_out() -> None:
    data = log("plain1 a1 -a plain1")
    assert [header.base_offset for _, header in visible_batches(data[:-1], ranges("a1"))] == [0]


def test_messages_pass_over_what_is_aborted_and_keep_their_bounds() -> None:
    fetched = Fetched(partition=2, data=log("plain3 a2 -a plain3"), first=1, end=8, aborted=ranges("a3"))
    assert [message.offset for message in fetched.messages()] == [1, 2, 6, 7]


@pytest.fixture
def transactional(posthouse_session: ThreadBroker, topic: str) -> Iterator[TransactionalProducer]:
    producer = TransactionalProducer(
        {"bootstrap.servers": posthouse_session.kafka, "transactional.id": f"id-{topic}", "log_level": 0}
    )
    producer.init_transactions(10)
    yield producer
    producer.purge()


def send(producer: TransactionalProducer, topic: str, *values: bytes) -> None:
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(10) == 0


def test_over_the_wire(client: Client, topic: str, transactional: TransactionalProducer) -> None:
    client.create_topic(topic, partitions=1)
    transactional.begin_transaction()
    send(transactional, topic, b"aborted 1", b"aborted 2")
    with client.producer(topic) as producer:
        producer.send(b"between")
    send(transactional, topic, b"aborted 3")
    transactional.abort_transaction(10)
    transactional.begin_transaction()
    send(transactional, topic, b"committed")
    transactional.commit_transaction(10)
    assert [message.value for message in client.messages(topic)] == [b"between", b"committed"]
    # From inside the aborted transaction.
    found = client.messages(topic, Start.at(3))
    assert [message.value for message in found] == [b"committed"]


def test_reading_ends_before_an_open_transaction(
    client: Client, topic: str, transactional: TransactionalProducer
) -> None:
    client.create_topic(topic, partitions=1)
    with client.producer(topic) as producer:
        producer.send(b"before")
    transactional.begin_transaction()
    send(transactional, topic, b"open 1", b"open 2")
    with client.producer(topic) as producer:
        producer.send(b"behind")
    assert [message.value for message in client.messages(topic)] == [b"before"]
    assert [message.value for message in client.messages(topic, Start.at(-1))] == [b"before"]
    assert list(client.messages(topic, Start.at(2))) == [], "it is there but not to be read yet"
    reading = client.reading(topic, Start.end(), follow=True)
    transactional.commit_transaction(10)
    fetched = next(iter(reading))
    assert [message.value for message in fetched.messages()] == [b"open 1", b"open 2", b"behind"]
