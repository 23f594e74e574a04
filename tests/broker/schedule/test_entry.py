"""Delayed messages in their stored form."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.broker.schedule.entry import LATEST_MS, Scheduled, decode
from posthouse.model.errors import BadRequest, DataDamaged

ATTRIBUTES = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63)
        | st.text(max_size=5)
        | st.binary(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    ),
    max_size=3,
)
MESSAGES = st.builds(
    Scheduled,
    due_ms=st.integers(0, LATEST_MS),
    namespace=st.text(max_size=5),
    exchange=st.text(max_size=5),
    key=st.binary(max_size=5),
    value=st.binary(max_size=20),
    headers=st.binary(max_size=10),
    attributes=ATTRIBUTES,
    expires_in_ms=st.none() | st.integers(0, 2**63 - 1),
    priority=st.integers(0, 255),
    more_keys=st.lists(st.binary(max_size=4), max_size=3).map(tuple),
    persistent=st.booleans(),
)
RECORDS = st.builds(
    Scheduled,
    due_ms=st.integers(0, LATEST_MS),
    namespace=st.just("/"),
    exchange=st.text(max_size=5),
    key=st.binary(max_size=5),
    has_key=st.booleans(),
    value=st.binary(max_size=20),
    headers=st.binary(max_size=10),
    partition=st.integers(0, 100_000),
)
"""For a partition of a topic."""


@given(MESSAGES | RECORDS)
def test_round_trip(scheduled: Scheduled) -> None:
    again = decode(scheduled.due_ms, scheduled.encode())
    assert again == scheduled
    assert again.encode() == scheduled.encode()


def test_attributes_keep_their_types() -> None:
    attributes = {
        "bytes": b"\x00\xff",
        "time": datetime(2030, 1, 1, tzinfo=UTC),
        "decimal": Decimal("1.50"),
        "float": 1.0,
        "text": "bytes",
        "$bytes": "not bytes",
    }
    scheduled = Scheduled(due_ms=0, namespace="/", exchange="x", key=b"", value=b"", attributes=attributes)
    again = decode(0, scheduled.encode())
    assert again.attributes == attributes
    assert {name: type(value) for name, value in again.attributes.items()} == {
        name: type(value) for name, value in attributes.items()
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"due_ms": -1},
        {"due_ms": LATEST_MS + 1},
        {"expires_in_ms": 2**63},
        {"priority": -1},
        {"attributes": {"a": object()}},
    ],
)
def test_what_cannot_be_stored_cannot_be_made(wrong: dict[str, object]) -> None:
    with pytest.raises(BadRequest):
        Scheduled(**{"due_ms": 0, "namespace": "/", "exchange": "x", "key": b"", "value": b""} | wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x02" + bytes(60)])
def test_what_was_never_stored(data: bytes) -> None:
    with pytest.raises(DataDamaged):
        decode(0, data)
