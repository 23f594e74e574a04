"""Recall handles: clients find the broker in them, and only the broker makes them."""

from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest

from posthouse.broker.delayed_records import DelayedId
from posthouse.protocols.rocketmq.recall_handles import BadHandle, RecallHandle, decode_handle

KEY = b"k" * 32
HANDLE = RecallHandle(
    topic="%RETRY%orders-1_2",
    broker="posthouse",
    message_id="7F0000010B7B18B4AAC27B2A3F5C0000",
    delayed=DelayedId(due_ms=1_700_000_000_123, sequence=111_411_200_008_060_928),
)


def with_id(id: str) -> RecallHandle:
    return RecallHandle(topic="t", broker="b", message_id=id, delayed=HANDLE.delayed)


def test_what_clients_in_java_read() -> None:
    words = urlsafe_b64decode(HANDLE.encode(KEY)).decode().split(" ")
    assert words[:5] == ["v1", HANDLE.topic, "posthouse", "1700000000123", HANDLE.message_id]


@pytest.mark.parametrize(
    "handle", [HANDLE, with_id(""), with_id("x" * 128)], ids=["usual", "no id", "long id"]
)
def test_there_and_back(handle: RecallHandle) -> None:
    assert decode_handle(handle.encode(KEY), KEY) == handle


@pytest.mark.parametrize("id", ["x" * 129, "a b", "ä", "a\nb", "-"])
def test_ids_that_do_not_fit(id: str) -> None:
    assert decode_handle(with_id(id).encode(KEY), KEY).message_id == ""


def test_handles_of_others() -> None:
    text = HANDLE.encode(KEY)
    with pytest.raises(BadHandle):
        decode_handle(text, b"another key")
    inside = urlsafe_b64decode(text)
    for at in range(len(inside)):
        changed = bytearray(inside)
        changed[at] ^= 1
        with pytest.raises(BadHandle):
            decode_handle(urlsafe_b64encode(changed).decode(), KEY)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "v1",
        "!",
        "ä",
        "=",
        "AAA",
        "A" * 2049,
        *(urlsafe_b64encode(b).decode() for b in (b"\xff", b" ")),
    ],
)
def test_what_is_no_handle(text: str) -> None:
    with pytest.raises(BadHandle, match="no recall handle of this broker"):
        decode_handle(text, KEY)
