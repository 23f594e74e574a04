"""Messages as records and back, and records of other protocols. See test_remoting_pull for more of those."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.broker.half_messages.proofs import with_proof
from posthouse.broker.schedule.entry import LATEST_MS
from posthouse.protocols.rocketmq.codec.codes import KEYS, WAIT
from posthouse.protocols.rocketmq.codec.properties import decode_properties
from posthouse.protocols.rocketmq.codec.stored_messages import LONGEST_PROPERTIES as LONGEST_STORED
from posthouse.protocols.rocketmq.delays import PROPERTIES as DELAYS
from posthouse.protocols.rocketmq.messages import (
    HEADER,
    UNKNOWN_HOST,
    Message,
    consumer_properties,
    message_of,
    record_headers,
    record_key,
)
from posthouse.records.header_section import decode_section, encode_section
from posthouse.records.raw import NO_HEADERS, RawRecord
from tests.protocols.rocketmq.codec.rocketmq_cases import few

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=20)
names = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=20)
properties = st.dictionaries(names | st.sampled_from([KEYS, WAIT, *DELAYS]), texts, max_size=5)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
ports = st.integers(0, 65535).map(lambda port: port.to_bytes(4))
hosts = st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16)


def record(headers: bytes, *, key: bytes | None = None, value: bytes = b"body") -> RawRecord:
    return RawRecord(5, 1_700_000_000_000, key, value, headers)


@few(300)
@given(
    st.binary(max_size=30),
    properties,
    int32s,
    int32s,
    int64s,
    st.builds(bytes.__add__, hosts, ports),
    st.none() | st.integers(0, LATEST_MS),
)
def test_round_trip(
    body: bytes,
    properties: dict[str, str],
    flag: int,
    times: int,
    born_at: int,
    born_host: bytes,
    due_ms: int | None,
) -> None:
    message = Message(
        body=body,
        properties=properties,
        flag=flag,
        reconsume_times=times,
        born_at=born_at,
        born_host=born_host,
        due_ms=due_ms,
    )
    found = message_of(record(record_headers(message), key=record_key(properties), value=body))
    message.properties = {
        name: value for name, value in properties.items() if name != WAIT and name not in DELAYS
    }
    if due_ms is not None:
        message.properties["TIMER_DELIVER_MS"] = str(due_ms)
    assert found == message


def test_what_proves_a_half_message_is_no_property() -> None:
    message = Message(body=b"body", properties={"TAGS": "red"}, born_at=5, reconsume_times=2)
    assert message_of(record(with_proof(record_headers(message), 7))) == message
    foreign = with_proof(encode_section([(b"TAGS", b"red")]), 7)
    assert message_of(record(foreign)).properties == {"TAGS": "red"}


headers = st.lists(
    st.tuples(
        st.binary(max_size=10) | st.sampled_from([b"TAGS", b"amqp.x", HEADER, b"a" * 20_000]),
        st.none() | st.binary(max_size=40) | st.just(b"x" * 20_000),
    ),
    max_size=5,
)


@few(500)
@given(headers, st.none() | st.binary(max_size=10))
def test_any_record_is_a_message_that_clients_can_read(
    headers: list[tuple[bytes, bytes | None]], key: bytes | None
) -> None:
    found = message_of(record(encode_section(headers), key=key))
    text = consumer_properties(found.properties)
    assert decode_properties(text) == {"MSG_REGION": "DefaultRegion"} | found.properties
    assert len(text.encode()) <= LONGEST_STORED


def test_the_longest_properties_that_fit() -> None:
    """With what the broker adds."""
    fixed = record_headers(Message(body=b"", properties={}, born_at=0))
    [(name, value)] = decode_section(fixed)
    room = LONGEST_STORED - len(consumer_properties({"a": ""}))
    for size in (room, room + 1):
        found = message_of(record(encode_section([(b"a", b"x" * size), (name, value)])))
        assert found.properties == ({"a": "x" * size} if size == room else {})
        assert len(consumer_properties(found.properties).encode()) <= LONGEST_STORED
    assert len(found.born_host) in (8, 20)


def test_a_record_without_headers() -> None:
    found = message_of(record(NO_HEADERS))
    assert found == Message(body=b"body", properties={}, born_at=1_700_000_000_000, born_host=UNKNOWN_HOST)
    assert found.tag is None


def test_a_key_that_is_no_text_is_left_out() -> None:
    assert message_of(record(NO_HEADERS, key=b"\xff")).properties == {}
    assert message_of(record(NO_HEADERS, key=b"k")).properties == {"KEYS": "k"}
    assert message_of(record(NO_HEADERS, key=b"")).properties == {}


def test_headers_that_look_like_those_of_the_broker_are_left_out() -> None:
    foreign = encode_section([(b"posthouse.x", b"1"), (b"rocketmq.x", b"1"), (b"amqp.x", b"1"), (b"x", b"1")])
    assert message_of(record(foreign)).properties == {"x": "1"}


def test_where_a_dead_letter_comes_from_is_kept() -> None:
    foreign = encode_section([(b"posthouse.dead-topic", b"t"), (b"posthouse.dead-offset", b"5")])
    found = message_of(record(foreign)).properties
    assert found == {"posthouse.dead-topic": "t", "posthouse.dead-offset": "5"}


@pytest.mark.parametrize(
    ("text", "due"),
    [(b"5", 5), (b"", None), (b"x", None), (b"-5", None), (b"9" * 17, None), (b"\xc2\xb2", None)],
)
def test_when_a_message_was_due(text: bytes, due: int | None) -> None:
    """As any producer can write it."""
    [fixed] = decode_section(record_headers(Message(body=b"", properties={}, born_at=0)))
    for headers in ([(b"TIMER_DELIVER_MS", text)], [(b"TIMER_DELIVER_MS", text), fixed]):
        assert message_of(record(encode_section(headers))).due_ms == due


def test_what_fits_is_kept() -> None:
    found = message_of(record(encode_section([(b"a", b"x" * 31_000), (b"b", b"y" * 2000), (b"c", b"z")])))
    assert list(found.properties) == ["a", "c"]


def test_the_record_of_a_message() -> None:
    message = Message(body=b"", properties={"KEYS": "k1 k2", "TAGS": "red"}, born_at=1, flag=2)
    assert record_key(message.properties) == b"k1 k2"
    assert record_key({"KEYS": ""}) is None
    fixed = b"\0\0\0\x02" + bytes(4) + b"\0\0\0\0\0\0\0\x01" + UNKNOWN_HOST
    assert decode_section(record_headers(message)) == [
        (b"KEYS", b"k1 k2"),
        (b"TAGS", b"red"),
        (HEADER, fixed),
    ]
    assert message_of(record(record_headers(message))).tag == "red"
