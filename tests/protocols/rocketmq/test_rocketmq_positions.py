import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.broker.topics import MAX_PARTITIONS
from posthouse.model.errors import BadRequest
from posthouse.protocols.rocketmq.positions import (
    Position,
    half_id,
    pack_half_position,
    pack_position,
    unpack_position,
)


@given(st.integers(0, MAX_PARTITIONS), st.integers(0, 2**45 - 1), st.booleans())
def test_round_trip(partition: int, offset: int, is_retry: bool) -> None:
    """Of every partition that a topic can have, in what a client keeps in 63 bits."""
    position = pack_position(partition, offset, is_retry=is_retry)
    assert 0 <= position < 1 << 63
    assert unpack_position(position) == Position(partition, offset, is_retry)


def test_layout() -> None:
    assert pack_position(0, 5, is_retry=False) == 5
    assert pack_position(3, 5, is_retry=False) == 3 << 45 | 5
    assert pack_position(3, 5, is_retry=True) == 1 << 62 | 3 << 45 | 5


@pytest.mark.parametrize(
    ("partition", "offset"), [(1 << 17, 0), ((1 << 17) - 1, 0), (0, 1 << 45), (-1, 0), (0, -1)]
)
def test_what_does_not_fit(partition: int, offset: int) -> None:
    with pytest.raises(BadRequest, match="cannot be told"):
        pack_position(partition, offset, is_retry=False)


@pytest.mark.parametrize("position", [-1, 1 << 63, 1 << 100])
def test_what_is_no_position(position: int) -> None:
    with pytest.raises(BadRequest, match="no message"):
        unpack_position(position)


@given(st.integers(0, (1 << 45) - 1))
def test_half_messages(id: int) -> None:
    assert half_id(pack_half_position(id)) == id


def test_what_is_no_half_message() -> None:
    with pytest.raises(BadRequest, match="cannot be told"):
        pack_half_position(1 << 45)
    for position in (pack_position(0, 5, is_retry=False), pack_half_position(5) | 1 << 62):
        with pytest.raises(BadRequest, match="is no half message"):
            half_id(position)
