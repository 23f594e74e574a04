"""Options: Spark's names, and sentences for what is wrong."""

import pytest

from posthouse.client.topic_partitions import TopicPartition
from posthouse.records.record_names import Name, NameKind
from posthouse.spark.errors import WrongOption
from posthouse.spark.offsets import from_json, to_json
from posthouse.spark.options import EARLIEST, LATEST, Position, TopicSelection, parse_source

BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}


def test_the_defaults() -> None:
    batch = parse_source(BASE, streaming=False)
    assert batch.topics == TopicSelection(names=("a",))
    assert batch.starting is None and batch.ending is None
    assert batch.fail_on_data_loss and batch.is_committed
    assert not batch.include_headers
    assert batch.max_offsets is None and batch.min_partitions == 0


def test_objects() -> None:
    default = parse_source(BASE, streaming=False)
    assert default.reads_objects and default.object_store is None
    assert not parse_source(BASE | {"readObjects": "false"}, streaming=True).reads_objects
    own = parse_source(BASE | {"objectStore": "s3://bucket/place"}, streaming=True)
    assert own.object_store == "s3://bucket/place"
    with pytest.raises(WrongOption, match="'objectStore' has no effect with readObjects=false"):
        parse_source(BASE | {"objectStore": "s3://bucket", "readObjects": "false"}, streaming=False)
    with pytest.raises(WrongOption, match="'objectStore' is an address such as s3://BUCKET/PREFIX"):
        parse_source(BASE | {"objectStore": "bucket"}, streaming=False)


def test_keys_and_ids() -> None:
    def name(**more: str) -> Name | None:
        return parse_source(BASE | more, streaming=True).name

    assert name() is None
    assert name(key="grün") == Name(NameKind.KEY, "grün".encode())
    assert name(KEY="") == Name(NameKind.KEY, b"")
    assert name(key="/wA=", keyEncoding="base64") == Name(NameKind.KEY, b"\xff\0")
    assert name(messageId="7F00") == Name(NameKind.MESSAGE_ID, b"7F00")


def test_names_have_no_case() -> None:
    options = parse_source(
        {"KAFKA.bootstrap.servers": "h:1", "SUBSCRIBE": " b , a,", "failondataloss": "FALSE"}, streaming=False
    )
    assert options.topics.names == ("a", "b")
    assert not options.fail_on_data_loss


def test_positions() -> None:
    def starting(**more: str) -> Position | None:
        return parse_source(BASE | more, streaming=True).starting

    assert starting(startingOffsets="earliest") == Position(offset=EARLIEST)
    assert starting(startingOffsets="latest") == Position(offset=LATEST)
    assert starting(startingOffsets='{"a": {"0": 5, "1": -2}}') == Position(
        offsets=((TopicPartition("a", 0), 5), (TopicPartition("a", 1), EARLIEST))
    )
    assert starting(startingOffsets="latest", startingOffsetsByTimestamp='{"a": {"0": 7}}') == Position(
        timestamps=((TopicPartition("a", 0), 7),)
    )
    assert starting(startingTimestamp="9", startingOffsetsByTimestamp='{"a": {"0": 7}}') == Position(
        timestamp=9
    )


def test_which_topics() -> None:
    pattern = parse_source({"kafka.bootstrap.servers": "h:1", "subscribePattern": "or.*s"}, streaming=True)
    assert pattern.topics.wants("orders") and not pattern.topics.wants("orders2")
    assigned = parse_source({"kafka.bootstrap.servers": "h:1", "assign": '{"a": [2, 0]}'}, streaming=True)
    assert assigned.topics.places == (TopicPartition("a", 0), TopicPartition("a", 2))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"subscribe": "a"}, "'kafka.bootstrap.servers' is missing"),
        (BASE | {"key": "a", "messageId": "b"}, "'key' and 'messageId' do not go together"),
        (BASE | {"key": "a", "keyEncoding": "base64"}, "'key' is no base64"),
        (BASE | {"key": "a", "keyEncoding": "hex"}, "one of text, base64"),
        (BASE | {"keyEncoding": "text"}, "'keyEncoding' has no effect without 'key'"),
        (BASE | {"messageId": ""}, "'messageId' is empty"),
        (BASE | {"message_id": "a"}, "did you mean 'messageId'?"),
        (BASE | {"subscrieb": "a"}, "did you mean 'subscribe'?"),
        (BASE | {"startingOffset": "earliest"}, "did you mean 'startingOffsets'?"),
        (BASE | {"completely": "else"}, "see docs/spark.md"),
        (BASE | {"assign": "{}"}, "exactly one of"),
        ({"kafka.bootstrap.servers": "h:1"}, "exactly one of"),
        ({"kafka.bootstrap.servers": "h:1", "subscribe": ","}, "'subscribe' is empty"),
        ({"kafka.bootstrap.servers": "h:1", "subscribePattern": "("}, "no regular expression"),
        ({"kafka.bootstrap.servers": "h:1", "assign": '{"a": 1}'}, "'assign' is JSON such as"),
        (BASE | {"startingOffsets": "latest"}, "cannot be the latest"),
        (BASE | {"startingOffsets": '{"a": {"0": -1}}'}, "cannot be the latest"),
        (BASE | {"endingOffsets": "earliest"}, "cannot be the earliest"),
        (BASE | {"startingOffsets": "0"}, "is JSON such as"),
        (BASE | {"startingOffsets": '{"a": {"0": -3}}'}, "is JSON such as"),
        (BASE | {"startingOffsets": '{"a": '}, "not valid JSON"),
        (BASE | {"minPartitions": "none"}, "whole number from 1 on"),
        (BASE | {"maxRecordsPerPartition": "0"}, "whole number from 1 on"),
        (BASE | {"includeHeaders": "yes"}, "'true' or 'false'"),
        (BASE | {"kafka.isolation.level": "dirty"}, "one of read_committed, read_uncommitted"),
        (BASE | {"maxOffsetsPerTrigger": "5"}, "is for streaming queries"),
        (BASE | {"kafka.security.protocol": "SASL_SSL"}, "'kafka.sasl.mechanism' is missing"),
        (BASE | {"kafka.ssl.protocol": "TLSv1.3"}, "those about TLS and SASL are kafka.sasl.mechanism"),
        (BASE | {"startingTimestamp": "today"}, "whole number"),
        (BASE | {"startingOffsetsByTimestampStrategy": "guess"}, "one of error, latest"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(WrongOption, match=sentence.replace("?", r"\?")):
        parse_source(given, streaming=False)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"endingOffsets": "latest"}, "is for batch queries"),
        ({"endingTimestamp": "5"}, "is for batch queries"),
        ({"maxTriggerDelay": "soon"}, "is a time such as"),
    ],
)
def test_what_is_wrong_with_a_stream(more: dict[str, str], sentence: str) -> None:
    with pytest.raises(WrongOption, match=sentence):
        parse_source(BASE | more, streaming=True)


def test_times() -> None:
    assert parse_source(BASE | {"maxTriggerDelay": "2m"}, streaming=True).max_trigger_delay_ms == 120_000


def test_offsets_are_always_written_the_same_way() -> None:
    one = {TopicPartition("b", 1): 1, TopicPartition("a", 10): 2, TopicPartition("a", 2): 3}
    other = dict(reversed(one.items()))
    assert str(to_json(one)) == str(to_json(other))
    assert from_json(to_json(one)) == one
