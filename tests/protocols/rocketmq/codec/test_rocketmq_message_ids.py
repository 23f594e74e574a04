import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.protocols.rocketmq.codec.errors import BadHost, BadMessageId
from posthouse.protocols.rocketmq.codec.hosts import Host, pack_host, unpack_host
from posthouse.protocols.rocketmq.codec.message_ids import MessageId, make_message_id, parse_message_id
from tests.protocols.rocketmq.codec.rocketmq_cases import few

V4 = "0A00000100002A9F00000000000003E8"
V6 = "20010DB800000000000000000000000100002A9F00000000000003E8"


@pytest.mark.parametrize(("text", "address"), [(V4, "10.0.0.1"), (V6, "2001:db8::1")])
def test_ids(text: str, address: str) -> None:
    host = Host(address=address, port=10911)
    assert parse_message_id(text) == MessageId(host=host, position=1000)
    assert parse_message_id(text.lower()) == MessageId(host=host, position=1000)
    assert make_message_id(pack_host(host), 1000) == text
    assert unpack_host(bytes.fromhex(text)[:-8]) == host


def test_hosts_as_text() -> None:
    assert str(Host(address="10.0.0.1", port=80)) == "10.0.0.1:80"
    assert str(Host(address="::1", port=80)) == "[::1]:80"


def test_a_zone_is_left_out() -> None:
    assert pack_host(Host(address="fe80::1%eth0", port=1)) == pack_host(Host(address="fe80::1", port=1))


@pytest.mark.parametrize(
    "text",
    [
        "",
        V4[:-1],
        V4 + "0",
        V4[:-1] + "G",
        V4[:-2] + "0 ",
        "٠" * 32,
        V6[:-2],
        V4[:8] + "00010000" + V4[16:],  # port 65,536
        V4[:16] + "8" + V4[17:],
    ],
)
def test_refused_ids(text: str) -> None:
    with pytest.raises(BadMessageId):
        parse_message_id(text)


@pytest.mark.parametrize("position", [-1, 1 << 63])
def test_refused_positions(position: int) -> None:
    with pytest.raises(BadMessageId):
        make_message_id(bytes(8), position)


@pytest.mark.parametrize(
    ("address", "port"),
    [
        ("", 1),
        ("localhost", 1),
        ("10.0.0", 1),
        ("::g", 1),
        ("a\0b", 1),
        ("10.0.0.1", -1),
        ("10.0.0.1", 65536),
    ],
)
def test_refused_hosts(address: str, port: int) -> None:
    with pytest.raises(BadHost):
        pack_host(Host(address=address, port=port))


@pytest.mark.parametrize("packed", [b"", bytes(4), bytes(16), b"\0\0\0\0\0\1\0\0"])
def test_refused_packed_hosts(packed: bytes) -> None:
    with pytest.raises(BadHost):
        unpack_host(packed)


@few(200)
@given(
    st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16),
    st.integers(0, 65535),
    st.integers(0, (1 << 63) - 1),
)
def test_round_trip(address: bytes, port: int, position: int) -> None:
    packed = address + port.to_bytes(4)
    read = parse_message_id(make_message_id(packed, position))
    assert (pack_host(read.host), read.position) == (packed, position)


@few(100)
@given(st.text(max_size=60) | st.text("0123456789abcdefg", min_size=31, max_size=57))
def test_noise(text: str) -> None:
    try:
        read = parse_message_id(text)
    except BadMessageId:
        return
    assert make_message_id(pack_host(read.host), read.position) == text.upper()
