"""Records as AMQP consumers get them: from AMQP, from elsewhere, and after a death."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from posthouse.protocols.amqp.codec.tables import Timestamp, decode_table
from posthouse.protocols.amqp.mapping import caches
from posthouse.protocols.amqp.mapping.caches import DeliveryCache
from posthouse.protocols.amqp.mapping.changes import REMOVE, set_headers
from posthouse.protocols.amqp.mapping.deliveries import MAX_TABLE, Delivery
from posthouse.protocols.amqp.mapping.envelopes import envelope_of
from posthouse.protocols.amqp.mapping.properties import NO_PROPERTIES, Properties, parse
from posthouse.records.header_section import decode_section, encode_section
from tests.protocols.amqp.codec.amqp_cases import few, properties

Amqp = commands.Basic.Properties
Headers = list[tuple[bytes, bytes | None]]
DEATH: dict[str, Any] = {
    "queue": "work",
    "reason": "rejected",
    "count": 2,
    "exchange": "jobs",
    "keys": ["a", "b"],
    "time": 1_700_000_000,
}


def exchange_of(topic: str) -> bytes:
    return topic.removeprefix("topic-of-").encode() if topic.startswith("topic-of-") else b""


def delivered(section: bytes | Headers, topic: str = "topic-of-dlx", timestamp: int = 5999) -> Delivery:
    section = section if isinstance(section, bytes) else encode_section(section)
    return DeliveryCache(exchange_of).of(section, topic, timestamp)


def dead(values: Amqp | None, *deaths: Any) -> Headers:
    note = (b"posthouse.deaths", json.dumps(deaths).encode())
    if values is None:
        return [(b"name", b"value"), note]
    return [*decode_section(envelope_of(b"jobs", values.marshal()).headers), note]


@few(300)
@given(properties, st.binary(max_size=255))
def test_what_came_by_amqp_goes_out_unchanged(values: Amqp, exchange: bytes) -> None:
    raw = values.marshal()
    expected = raw
    if "BCC" in (values.headers or {}):
        expected = set_headers(raw, {"BCC": REMOVE})
    assert delivered(envelope_of(exchange, raw).headers) == Delivery(exchange, expected)


def test_hidden_keys_are_gone() -> None:
    values = Amqp(headers={"BCC": ["b"], "CC": ["c"], "n": 1}, app_id="a")
    expected = Amqp(headers={"CC": ["c"], "n": 1}, app_id="a")
    assert delivered(envelope_of(b"", values.marshal()).headers).properties == expected.marshal()


class TestFromElsewhere:
    @few(300)
    @given(st.dictionaries(st.text(max_size=60), st.none() | st.binary(max_size=40)), st.integers(0, 1 << 42))
    def test_headers_are_headers(self, headers: dict[str, bytes | None], timestamp: int) -> None:
        section = encode_section([(name.encode(), value) for name, value in headers.items()])
        exchange, raw = delivered(section, "topic-of-x", timestamp)
        found = parse(raw)
        as_bytes = {
            name: value.encode() if isinstance(value, str) else value for name, value in found.headers.items()
        }
        assert exchange == b"x"
        assert as_bytes == headers
        assert found == Properties(headers=found.headers, timestamp=timestamp // 1000)

    def test_types(self) -> None:
        raw = delivered([(b"t", b"text"), (b"b", b"\xff"), (b"n", None)], timestamp=-1).properties
        assert raw == b"\x20\x00" + (4 + 7 + 4 + 4 + 3).to_bytes(4) + (
            b"\x01tS\0\0\0\x04text" + b"\x01bx\0\0\0\x01\xff" + b"\x01nV"
        )

    def test_nothing_but_time(self) -> None:
        assert delivered([], "other", 5999) == Delivery(b"", b"\x00\x40" + (5).to_bytes(8))
        assert delivered([], "other", -1) == Delivery(b"", NO_PROPERTIES)

    def test_the_last_of_a_name_counts(self) -> None:
        assert parse(delivered([(b"a", b"1"), (b"a", b"2")]).properties).headers == {"a": "2"}

    def test_names_that_are_not_utf8(self) -> None:
        assert parse(delivered([(b"a\xff", b"1")]).properties).headers == {"a�": "1"}

    def test_what_no_table_or_frame_holds_is_left_out(self) -> None:
        headers: Headers = [
            (b"n" * 256, b"long"),
            (b"\xff" * 100, b"long when it is replaced"),
            (b"large", b"x" * MAX_TABLE),
            *((b"%d" % number, b"x" * 1000) for number in range(100)),
        ]
        raw = delivered(headers).properties
        assert len(raw) < MAX_TABLE + 100
        kept = list(parse(raw).headers)
        assert kept == [str(number) for number in range(len(kept))]
        assert len(raw) > MAX_TABLE - 2000

    @pytest.mark.parametrize(
        "forged",
        [
            [(b"amqp.properties", b"\0\0")],
            [(b"posthouse.exchange", b"e" * 256)],
            [(b"posthouse.exchange", None)],
            [(b"posthouse.exchange", b"e"), (b"amqp.properties", b"\xff\xff")],
            [(b"posthouse.exchange", b"e"), (b"amqp.properties", b"\x20\x00\0\0\0\x03\x01ky")],
            [(b"posthouse.exchange", b"e"), (b"amqp.properties", b"\x20\x00\0\0\0\x04\x01kV")],
            [(b"posthouse.exchange", b"e"), (b"amqp.properties", None)],
            [(b"posthouse.exchange", b"e"), (b"amqp.properties", b"")],
        ],
    )
    def test_headers_called_like_ours(self, forged: Headers) -> None:
        exchange, raw = delivered([*forged, (b"a", b"1")])
        assert exchange == b"dlx"
        assert parse(raw).headers["a"] == "1"

    def test_ours_in_another_order(self) -> None:
        headers: Headers = [
            (b"a", b"1"),
            (b"amqp.properties", b"\x08\x00\x05"),
            (b"posthouse.exchange", b"e"),
        ]
        assert delivered(headers) == Delivery(b"e", b"\x08\x00\x05")
        assert delivered([headers[2], headers[0], headers[1]]) == Delivery(b"e", b"\x08\x00\x05")

    @few(200)
    @given(st.binary(max_size=60))
    def test_noise(self, section: bytes) -> None:
        parse(delivered(section).properties)


class TestDeaths:
    def test_of_a_message(self) -> None:
        values = Amqp(content_type="text/plain", headers={"n": 1}, message_id="m")
        older = {**DEATH, "queue": "first", "reason": "maxlen", "count": 1, "time": 1_600_000_000}
        exchange, raw = delivered(dead(values, DEATH, older))
        found = parse(raw)
        assert exchange == b"dlx"
        assert (found.content_type, found.message_id, found.timestamp) == (b"text/plain", b"m", None)
        newest = {
            "count": 2,
            "reason": "rejected",
            "queue": "work",
            "time": 1_700_000_000,
            "exchange": "jobs",
            "routing-keys": ["a", "b"],
        }
        oldest = {**newest, "count": 1, "reason": "maxlen", "queue": "first", "time": 1_600_000_000}
        assert found.headers == {
            "n": 1,
            "x-death": [newest, oldest],
            "x-first-death-queue": "first",
            "x-first-death-reason": "maxlen",
            "x-first-death-exchange": "jobs",
            "x-last-death-queue": "work",
            "x-last-death-reason": "rejected",
            "x-last-death-exchange": "jobs",
        }
        deaths = found.headers["x-death"]
        assert isinstance(deaths, list)
        assert type(deaths[0]["time"]) is Timestamp

    def test_of_a_message_whose_publisher_tells_of_deaths(self) -> None:
        told: Any = {"x-death": "forged", "x-first-death-queue": "told"}
        found = parse(delivered(dead(Amqp(headers=told), DEATH)).properties)
        deaths: Any = found.headers["x-death"]
        assert [(death["queue"], death["count"]) for death in deaths] == [("work", 2)]
        assert found.headers["x-first-death-queue"] == "told"
        assert "x-first-death-reason" not in found.headers
        assert found.headers["x-last-death-queue"] == "work"

    def test_of_which_only_a_part_is_told(self) -> None:
        part = {"queue": "q", "reason": "expired", "count": 1, "expiration": None}
        found = parse(delivered(dead(Amqp(headers={"x-death": []}), part)).properties)
        assert found.headers["x-death"] == [{"queue": "q", "reason": "expired", "count": 1}]

    def test_count_is_a_long(self) -> None:
        raw = delivered(dead(Amqp(), DEATH)).properties
        assert b"\x05countl" + (2).to_bytes(8) in raw

    def test_the_first_death_is_the_oldest(self) -> None:
        """An entry moves to the front when it happens again, but keeps its time."""
        other = {**DEATH, "queue": "retry", "time": DEATH["time"] + 1}
        headers = parse(delivered(dead(Amqp(), DEATH, other)).properties).headers
        assert (headers["x-first-death-queue"], headers["x-last-death-queue"]) == ("work", "work")
        at_once = {**DEATH, "queue": "retry"}
        headers = parse(delivered(dead(Amqp(), at_once, DEATH)).properties).headers
        assert (headers["x-first-death-queue"], headers["x-last-death-queue"]) == ("work", "retry")

    def test_what_died_does_not_expire_again(self) -> None:
        values = Amqp(expiration="100", app_id="a")
        expired = {**DEATH, "reason": "expired"}
        found = parse(delivered(dead(values, expired)).properties)
        assert (found.expiration, found.app_id) == (None, b"a")
        deaths = found.headers["x-death"]
        assert isinstance(deaths, list)
        assert deaths[0]["original-expiration"] == "100"
        assert parse(delivered(dead(values, DEATH)).properties).expiration is None
        assert parse(delivered(dead(values, DEATH, expired)).properties).expiration is None

    def test_of_a_record_from_elsewhere(self) -> None:
        exchange, raw = delivered(dead(None, DEATH))
        found = parse(raw)
        assert exchange == b"dlx"
        assert (found.headers["name"], found.headers["x-last-death-queue"], found.timestamp) == (
            "value",
            "work",
            5,
        )
        assert "posthouse.deaths" not in found.headers

    @pytest.mark.parametrize(
        "note",
        [
            b"",
            b"\xff",
            b"null",
            b"[]",
            b"{}",
            b"5",
            b'["a"]',
            b"[[]]",
            b'[{"queue":"q"}]',
            b"[" * 100_000,
            json.dumps([{**DEATH, "count": 1 << 70}]).encode(),
            json.dumps([{**DEATH, "count": "many"}]).encode(),
            json.dumps([{**DEATH, "time": float("inf")}]).encode(),
            json.dumps([{**DEATH, "time": -1}]).encode(),
            json.dumps([{**DEATH, "keys": 5}]).encode(),
        ],
    )
    def test_notes_that_make_no_sense(self, note: bytes) -> None:
        raw = Amqp(app_id="a").marshal()
        headers = [*decode_section(envelope_of(b"jobs", raw).headers), (b"posthouse.deaths", note)]
        assert delivered(headers) == Delivery(b"dlx", raw)

    def test_names_beyond_unicode(self) -> None:
        note = json.dumps([{**DEATH, "queue": "\ud800"}]).encode()
        found = parse(delivered([(b"posthouse.exchange", b""), (b"posthouse.deaths", note)]).properties)
        assert found.headers["x-last-death-queue"] == "?"

    def test_text_that_only_mentions_deaths(self) -> None:
        values = Amqp(headers={"text": "posthouse.deaths"}).marshal()
        assert delivered(envelope_of(b"e", values).headers) == Delivery(b"e", values)


class TestCache:
    def test_the_same_object_for_the_same_headers(self) -> None:
        cache = DeliveryCache(exchange_of)
        section = envelope_of(b"e", Amqp(content_type="a").marshal()).headers
        assert cache.of(section, "t", 1) is cache.of(bytes(bytearray(section)), "u", 2)

    def test_time_and_topic_are_not_kept(self) -> None:
        cache = DeliveryCache(exchange_of)
        section = encode_section([(b"a", b"1")])
        assert cache.of(section, "topic-of-a", 1000).exchange == b"a"
        exchange, raw = cache.of(section, "b", 2000)
        assert (exchange, parse(raw).timestamp) == (b"", 2)

    def test_limits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(caches, "MAX_CACHED", 3)
        cache = DeliveryCache(exchange_of)
        sections = [envelope_of(b"e", Amqp(message_id=str(number)).marshal()).headers for number in range(4)]
        first = [cache.of(section, "t", 1) for section in sections]
        assert cache.of(sections[3], "t", 1) is first[3]
        assert cache.of(sections[0], "t", 1) is not first[0]
        long = envelope_of(b"e", Amqp(headers={"a": "v" * 1500}).marshal()).headers
        assert cache.of(long, "t", 1) is not cache.of(long, "t", 1)


def test_tables_are_tables() -> None:
    """The table of a foreign record begins right behind the flags."""
    raw = delivered([(b"a", b"1")], timestamp=-1).properties
    assert decode_table(raw, 2) == ({"a": "1"}, len(raw))
