"""What a published message becomes in the log, and what the broker is told of it."""

import contextlib
import datetime
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from posthouse.broker.queues.envelope import Envelope
from posthouse.model.errors import CorruptBatch
from posthouse.protocols.amqp.codec.tables import encode_table
from posthouse.protocols.amqp.mapping import caches
from posthouse.protocols.amqp.mapping.caches import EnvelopeCache
from posthouse.protocols.amqp.mapping.errors import InvalidProperty, MalformedProperties
from posthouse.records.builder import BatchBuilder
from posthouse.records.header_section import decode_section, encode_section
from posthouse.records.record import decode_batches
from tests.protocols.amqp.codec.amqp_cases import few, properties

Amqp = commands.Basic.Properties


def envelope(values: Amqp | bytes, exchange: bytes = b"ex") -> Envelope:
    return EnvelopeCache()[exchange, values if isinstance(values, bytes) else values.marshal()]


def headers_only(**headers: Any) -> bytes:
    return b"\x20\x00" + encode_table(headers)


def in_a_record(section: bytes) -> tuple[tuple[str, bytes | None], ...]:
    """The headers as any reader of the log gets them."""
    builder = BatchBuilder()
    builder.add_raw(b"key", b"value", section, 0)
    (record,) = decode_batches(builder.build())
    return record.headers


def test_all_that_readers_of_other_protocols_see() -> None:
    values = Amqp(
        content_type="text/plain",
        content_encoding="gzip",
        headers={"name": "válue", "number": 7, "yes": True, "no": False, "half": 0.5, "nothing": None},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="r",
        expiration="60000",
        message_id="m",
        timestamp=datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC),
        message_type="t",
        user_id="u",
        app_id="a",
    )
    assert in_a_record(envelope(values).headers) == (
        ("posthouse.exchange", b"ex"),
        ("amqp.properties", values.marshal()),
        ("amqp.content-type", b"text/plain"),
        ("amqp.content-encoding", b"gzip"),
        ("amqp.correlation-id", b"c"),
        ("amqp.reply-to", b"r"),
        ("amqp.message-id", b"m"),
        ("amqp.type", b"t"),
        ("amqp.app-id", b"a"),
        ("amqp.user-id", b"u"),
        ("amqp.expiration", b"60000"),
        ("amqp.priority", b"3"),
        ("amqp.timestamp", b"1700000000"),
        ("half", b"0.5"),
        ("name", "válue".encode()),
        ("no", b"false"),
        ("nothing", None),
        ("number", b"7"),
        ("yes", b"true"),
    )


def test_without_properties_only_the_exchange_is_kept() -> None:
    assert in_a_record(envelope(Amqp(), b"").headers) == (("posthouse.exchange", b""),)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"\xff\x00", b"\xff\x00"),
        (Decimal("1.23"), b"1.23"),
        (datetime.datetime.fromtimestamp(5, datetime.UTC), b"5"),
        ([1, "a", None], b'[1,"a",null]'),
        ({"a": {"b": [True]}}, b'{"a":{"b":[true]}}'),
        (["é"], '["é"]'.encode()),
        ([bytearray(b"\xff")], b'["/w=="]'),
        ([Decimal("1.5"), float("inf")], b'["1.5","inf"]'),
    ],
)
def test_values_as_text(value: Any, shown: bytes) -> None:
    raw = Amqp(headers={"h": bytearray(value) if isinstance(value, bytes) else value}).marshal()
    assert in_a_record(envelope(raw).headers)[2:] == (("h", shown),)


def test_nobody_passes_for_the_broker() -> None:
    forged: dict[str, Any] = {
        "posthouse.deaths": "[]",
        "posthouse.exchange": "other",
        "amqp.properties": "x",
        "amqpx": "1",
    }
    values = Amqp(headers=forged)
    found = envelope(values)
    assert in_a_record(found.headers)[2:] == (("amqpx", b"1"),)
    assert found.attributes == forged


@few(200)
@given(properties)
def test_sections_are_what_a_batch_has(values: Amqp) -> None:
    section = envelope(values).headers
    builder = BatchBuilder()
    builder.add(None, None, in_a_record(section))
    (record,) = decode_batches(builder.build())
    assert [(name.decode(), value) for name, value in decode_section(section)] == list(record.headers)
    assert encode_section(decode_section(section)) == section


def test_long_names_and_values_in_sections() -> None:
    headers = [(b"n" * size, b"v" * (size + 1)) for size in (0, 63, 64, 4095, 4096, 100_000)]
    section = encode_section(headers)
    assert decode_section(section) == headers
    assert [(name.encode(), value) for name, value in in_a_record(section)] == headers
    assert decode_section(section, 2) == headers[:2]
    for end in (0, 1, 2, 70, len(section) - 1):
        with pytest.raises(CorruptBatch):
            decode_section(section[:end])


class TestMeaning:
    def test_by_default(self) -> None:
        assert envelope(Amqp()) == Envelope(
            headers=envelope(Amqp()).headers,
            attributes={},
            expires_in_ms=None,
            priority=0,
            delay_ms=0,
            more_keys=(),
            persistent=False,
        )

    @pytest.mark.parametrize(("mode", "persistent"), [(1, False), (2, True), (None, False)])
    def test_persistent(self, mode: int | None, persistent: bool) -> None:
        assert envelope(Amqp(delivery_mode=mode)).persistent is persistent

    @pytest.mark.parametrize(
        ("text", "expected"), [("0", 0), ("00060", 60), ("+5", 5), ("315360000000", 315_360_000_000)]
    )
    def test_expiration(self, text: str, expected: int) -> None:
        assert envelope(Amqp(expiration=text)).expires_in_ms == expected

    @pytest.mark.parametrize(
        ("text", "wrong"),
        [
            ("-1", "{value_negative,-1}"),
            ("x", "no_integer"),
            (" 1", "no_integer"),
            ("1.5", '{leftover_string,".5"}'),
            ("1_000", '{leftover_string,"_000"}'),
            ("²", "no_integer"),
            ("315360000001", "{value_too_large,315360000001}"),
            ("9" * 255, f"{{value_too_large,{'9' * 255}}}"),
        ],
    )
    def test_invalid_expiration(self, text: str, wrong: str) -> None:
        with pytest.raises(InvalidProperty) as caught:
            envelope(Amqp(expiration=text))
        assert (caught.value.code, caught.value.text) == (406, f"invalid expiration '{text}': {wrong}")

    def test_empty_expiration(self) -> None:
        with pytest.raises(InvalidProperty, match="invalid expiration ''"):
            envelope(b"\x01\x00\x00")

    def test_priority(self) -> None:
        assert envelope(Amqp(priority=255)).priority == 255

    @pytest.mark.parametrize(
        ("delay", "expected"), [(5, 5), (0, 0), (-5, 0), ("5", 0), (True, 0), (1 << 40, 1 << 40)]
    )
    def test_delay(self, delay: Any, expected: int) -> None:
        assert envelope(headers_only(**{"x-delay": delay})).delay_ms == expected

    def test_more_keys(self) -> None:
        raw = headers_only(CC=["a", "é"], BCC=[b"\xff", "b"], other=1)
        found = envelope(raw)
        assert found.more_keys == (b"a", "é".encode(), b"b"), "bytes are no string"
        assert found.attributes == {"CC": ["a", "é"], "other": 1}
        kept = dict(in_a_record(found.headers))
        assert kept["amqp.properties"] == headers_only(CC=["a", "é"], other=1)
        assert "BCC" not in kept

    @pytest.mark.parametrize("name", ["CC", "BCC"])
    @pytest.mark.parametrize(
        ("value", "kind"), [("a", "longstr"), (1, "long"), (None, "void"), ({"a": "b"}, "table")]
    )
    def test_keys_of_another_type(self, name: str, value: Any, kind: str) -> None:
        with pytest.raises(InvalidProperty) as caught:
            envelope(headers_only(**{name: value}))
        text = f'invalid message: {{unacceptable_type_in_header,"{name}",{kind}}}'
        assert (caught.value.code, caught.value.text) == (406, text)

    @pytest.mark.parametrize("name", ["CC", "BCC"])
    def test_what_is_no_string_among_keys_does_not_count(self, name: str) -> None:
        assert envelope(headers_only(**{name: [1, "a", None]})).more_keys == (b"a",)

    @few(100)
    @given(st.binary(max_size=30))
    def test_noise(self, raw: bytes) -> None:
        with contextlib.suppress(InvalidProperty, MalformedProperties):
            envelope(raw)


class TestCache:
    def test_the_same_object_for_the_same_message(self) -> None:
        cache = EnvelopeCache()
        raw = Amqp(content_type="a").marshal()
        assert cache[b"x", raw] is cache[b"x", bytes(bytearray(raw))]
        assert cache[b"x", raw] is not cache[b"y", raw]
        assert in_a_record(cache[b"y", raw].headers)[0] == ("posthouse.exchange", b"y")

    def test_long_properties_are_not_kept(self) -> None:
        cache = EnvelopeCache()
        for size, is_kept in ((512, True), (513, False)):
            raw = headers_only(a="v" * (size - len(headers_only(a=""))))
            assert len(raw) == size
            assert (cache[b"", raw] is cache[b"", raw]) is is_kept

    def test_it_does_not_grow_for_ever(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(caches, "MAX_CACHED", 3)
        cache = EnvelopeCache()
        raws = [Amqp(message_id=str(number)).marshal() for number in range(4)]
        first = [cache[b"", raw] for raw in raws]
        assert cache[b"", raws[3]] is first[3]
        assert cache[b"", raws[0]] is not first[0]

    def test_faults_are_told_every_time(self) -> None:
        cache = EnvelopeCache()
        for _ in range(2):
            with pytest.raises(InvalidProperty):
                cache[b"", Amqp(expiration="never").marshal()]

    def test_json_stays_json(self) -> None:
        value = {"list": [1, 2.5, "x"], "nested": {"none": None}}
        shown = dict(in_a_record(envelope(headers_only(h=value)).headers))["h"]
        assert shown is not None
        assert json.loads(shown) == value
