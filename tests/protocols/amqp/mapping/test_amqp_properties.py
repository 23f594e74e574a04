"""Property lists: reading all of them, and changing some of what is in them."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, header

from posthouse.protocols.amqp.codec.tables import MalformedTable
from posthouse.protocols.amqp.mapping.changes import (
    REMOVE,
    set_headers,
    with_delay_negated,
    with_delivery_count,
    without_expiration,
)
from posthouse.protocols.amqp.mapping.errors import MalformedProperties
from posthouse.protocols.amqp.mapping.properties import NO_PROPERTIES, Properties, parse, user_id_of
from tests.protocols.amqp.codec.amqp_cases import few, normal, properties, table_values, with_our_times

Amqp = commands.Basic.Properties
_names = st.sampled_from(["a", "b", "x-delay", "é", "BCC"])
_changes = st.dictionaries(_names, st.just(REMOVE) | table_values, max_size=3)


def by_pamqp(raw: bytes) -> Amqp:
    head = header.ContentHeader()
    head.unmarshal(b"\0\x3c\0\0" + bytes(8) + raw)
    return head.properties


def described(values: Amqp) -> dict[str, Any]:
    return {name: normal(value) for name, value in values}


@few(300)
@given(properties)
def test_reads_what_pamqp_wrote(values: Amqp) -> None:
    parsed = parse(values.marshal())
    for name, expected in described(values).items():
        if name == "headers":
            assert parsed.headers == (expected or {})
            continue
        found = getattr(parsed, "type" if name == "message_type" else name)
        # pamqp does not write strings that are empty.
        assert found == ((expected.encode() or None) if isinstance(expected, str) else expected), name


def test_nothing() -> None:
    assert parse(NO_PROPERTIES) == Properties(headers={})


def test_everything() -> None:
    text = b"\x01a"
    raw = (
        b"\xff\xfc" + text * 2 + b"\0\0\0\x03\x01kV" + b"\x02\x09" + text * 4 + bytes(7) + b"\x05" + text * 4
    )
    assert parse(raw) == Properties(
        content_type=b"a",
        content_encoding=b"a",
        headers={"k": None},
        delivery_mode=2,
        priority=9,
        correlation_id=b"a",
        reply_to=b"a",
        expiration=b"a",
        message_id=b"a",
        timestamp=5,
        type=b"a",
        user_id=b"a",
        app_id=b"a",
        cluster_id=b"a",
    )
    for end in range(len(raw)):
        with pytest.raises(MalformedProperties):
            parse(raw[:end])
    with pytest.raises(MalformedProperties):
        parse(raw + b"\0")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0",
        b"\0\x01\0\0",
        b"\0\x02",
        b"\x80\x00",
        b"\x80\x00\x05a",
        b"\x20\x00\0\0\0",
        b"\x20\x00\0\0\0\x02\x01k",
        b"\x20\x00\0\0\0\x03\x01ky",
        b"\x20\x00\xff\xff\xff\xff",
        b"\x20\x00\0\0\0\x04\xff\xc3\x28V",
        b"\0\0\0",
    ],
)
def test_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedProperties) as caught:
        parse(raw)
    assert caught.value.code == 502


@few(300)
@given(st.binary(max_size=40))
def test_noise(raw: bytes) -> None:
    for read in (
        parse,
        without_expiration,
        user_id_of,
        with_delay_negated,
        lambda raw: set_headers(raw, {"a": 1}),
    ):
        with contextlib.suppress(MalformedProperties):
            read(raw)


@pytest.mark.parametrize(
    ("values", "user"),
    [(Amqp(), None), (Amqp(user_id="me"), b"me"), (Amqp(content_type="a", app_id="b"), None)],
)
def test_user_id(values: Amqp, user: bytes | None) -> None:
    assert user_id_of(values.marshal()) == user


@few(300)
@given(properties, _changes)
def test_set_headers(values: Amqp, changes: dict[str, Any]) -> None:
    raw = values.marshal()
    expected = described(values)
    headers = {name: value for name, value in (expected["headers"] or {}).items() if name not in changes}
    headers |= {name: normal(value) for name, value in changes.items() if value is not REMOVE}
    changed = set_headers(raw, {name: with_our_times(value) for name, value in changes.items()})
    assert parse(changed).headers == headers
    assert described(by_pamqp(changed)) == expected | {"headers": headers}


@few(200)
@given(properties.filter(lambda values: values.headers))
def test_other_headers_keep_their_bytes(values: Amqp) -> None:
    """Written by pamqp as the smallest types that fit; we would write them otherwise."""
    raw = values.marshal()
    assert set_headers(raw, {}) == raw
    assert set_headers(set_headers(raw, {"\0new": [1, {"a": 2}]}), {"\0new": REMOVE}) == raw


def test_values_that_no_table_holds() -> None:
    with pytest.raises(MalformedTable):
        set_headers(NO_PROPERTIES, {"a": object()})


@few(200)
@given(properties)
def test_without_expiration(values: Amqp) -> None:
    changed = without_expiration(values.marshal())
    values.expiration = None
    assert changed == values.marshal()


def test_delivery_count_is_a_long() -> None:
    counted = with_delivery_count(NO_PROPERTIES, 3)
    assert counted == b"\x20\x00\0\0\0\x1a\x10x-delivery-countl" + (3).to_bytes(8)
    assert parse(with_delivery_count(counted, 4)).headers == {"x-delivery-count": 4}


@pytest.mark.parametrize(
    ("delay", "after"), [(5000, -5000), (-5000, -5000), (0, 0), (True, True), ("5", "5"), (None, None)]
)
def test_delays_are_negated_once(delay: Any, after: Any) -> None:
    raw = Amqp(headers={"x-delay": delay, "other": 1}, content_type="x-delay").marshal()
    assert parse(with_delay_negated(raw)).headers == {"x-delay": after, "other": 1}
    if delay == after:
        assert with_delay_negated(raw) == raw


@pytest.mark.parametrize("values", [Amqp(), Amqp(content_type="x-delay"), Amqp(headers={"other": "x-delay"})])
def test_without_a_delay_nothing_changes(values: Amqp) -> None:
    assert with_delay_negated(values.marshal()) == values.marshal()


def test_a_delay_beside_a_name_that_is_not_utf8() -> None:
    """Only records that came from elsewhere can hold such a thing."""
    raw = b"\x20\x00\0\0\0\x14\x01\xffV\x07x-delayl" + (5).to_bytes(8)
    assert with_delay_negated(raw) == raw
